"""Partitions as their files hold them: where they begin and end, what part of them a task reads, and the reading."""
