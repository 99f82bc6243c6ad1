"""Partition logs on disk: record batches, segments, indexes, producer state, checkpoints and data directories."""
