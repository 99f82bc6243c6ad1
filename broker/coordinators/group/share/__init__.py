"""Share groups (KIP-932): members that share partitions, and the states of these partitions."""
