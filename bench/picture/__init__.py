"""A run of ten minutes in which every panel of every board has something to show, and pictures of it."""
