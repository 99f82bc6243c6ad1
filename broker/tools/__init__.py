"""The offline tools: what stands in a data directory, and whether it is whole."""
