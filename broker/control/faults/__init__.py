"""Faults by rule: which requests go wrong, when, and how."""
