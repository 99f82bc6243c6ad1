"""Tar files that are known by where they come from, unpacked by any Python."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path


def unpack(archive: Path, place: Path) -> None:
    """Unpack into `place`, without what leads out of it where this Python can tell: before 3.11.4 it has no filters."""
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    shutil.unpack_archive(archive, place, **safely)
