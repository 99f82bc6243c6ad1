"""The indexes of a segment: offsets to positions, timestamps to offsets, aborted transactions."""
