"""SASL: the mechanisms by which clients prove who they are, and the states of a connection on the way there."""
