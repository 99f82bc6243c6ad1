"""Restoring archived topics: as segments in a data directory, or produced to any Kafka."""
