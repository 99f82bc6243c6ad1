"""Reading partitions from their segment files: bounds, ranges for tasks, and the reader."""
