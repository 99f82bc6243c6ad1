"""Partitions of this node: appending, reading, the high watermark, and the requests that wait for it."""
