"""Reports as files: HTML pages that load nothing from elsewhere, and JSON."""
