"""Statistics of topics: volume, rate, skew, compression, and the lag of consumer groups."""
