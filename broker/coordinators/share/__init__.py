"""The share coordinator's state machine: how far share groups have come in their partitions (KIP-932)."""
