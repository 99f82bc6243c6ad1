"""Real text of some thirty megabytes that every machine has: the running Python's standard library."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path


def source_files() -> list[Path]:
    """All `.py` files of the standard library, in a fixed order; without installed packages."""
    root = Path(sysconfig.get_paths()["stdlib"])
    outside = {"site-packages", "dist-packages", "__pycache__"}
    return sorted(path for path in root.rglob("*.py") if not outside.intersection(path.parts))


def standard_library_text() -> bytes:
    """All sources joined, byte for byte, with a line end between two files where the first lacks one."""
    pieces = []
    for path in source_files():
        data = path.read_bytes()
        pieces.append(data if data.endswith(b"\n") or not data else data + b"\n")
    return b"".join(pieces)


def lines(text: bytes) -> Iterator[bytes]:
    r"""The lines without their `\n`: `b"\n".join(lines(text))` plus one `\n` is the text again."""
    start = 0
    while start < len(text):
        end = text.index(b"\n", start)
        yield text[start:end]
        start = end + 1
