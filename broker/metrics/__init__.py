"""The metrics for Prometheus, read from figures that the other packages keep. They do not import this package."""
