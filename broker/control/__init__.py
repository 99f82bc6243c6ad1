"""A broker that is under a test: made anew between tests, its time moved by hand, asked by HTTP (docs/testing.md)."""
