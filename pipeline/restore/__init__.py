"""Archived topics brought back: as segments in a data directory, or produced to any Kafka."""
