"""Partitions as their leader sees them: appending, reading, the high watermark, and requests that wait for it."""
