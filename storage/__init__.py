"""The log on disk: record batches, segments, indexes, what is known of producers, and the directories they stand in."""
