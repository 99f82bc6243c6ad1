"""Checks whether the files of a data directory are whole, for `ottla verify` and `ottla pipeline audit`."""
