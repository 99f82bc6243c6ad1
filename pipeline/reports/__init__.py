"""Reports as files: pages that fetch nothing from anywhere, and JSON."""
