"""The audit of data directories: Spark's tasks check every batch, index, epoch and transaction."""
