"""The record batch, the same on the wire and on disk: its header, records, compression and validation."""
