"""The packages with their hot path compiled by mypyc: the same sources, answered one and a half times as often.

The sources stay what is read, tested and debugged (docs/decisions/compiled.md).
"""
