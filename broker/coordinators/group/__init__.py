"""The group coordinator's state machine: it is given requests, records, time and ids, and does no input or output."""
