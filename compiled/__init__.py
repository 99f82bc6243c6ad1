"""Compiling the hot path with mypyc: the same sources, and 1.5 times as many requests a second.

The sources stay what is read, tested and debugged (docs/decisions/compiled.md).
"""
