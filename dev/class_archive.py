"""Archives of the classes that Java programs load (JEP 350): with its archive Kafka starts with 40 percent less CPU."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dev.maven import one_at_a_time
from dev.repository import REPOSITORY

ARCHIVES: Final = REPOSITORY / ".kafka" / "classes"
QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""What cannot be archived is loaded as ever, and not worth a line in a program's output."""


@functools.cache
def with_archive(program: str, libraries: str, run: Callable[[str, Sequence[str]], None]) -> tuple[str, ...]:
    """The options of a JVM that takes the classes of a program on the jars of a directory from their archive.

    If there is no archive yet, `run(libraries, options)` makes one: it runs the program with these options and ends it
    in order. Without options if this Java archives nothing. The JVM itself ignores an archive of other jars.
    """
    archive = ARCHIVES / f"{program}-{_key(libraries)}.jsa"
    with one_at_a_time(ARCHIVES):
        if not archive.exists():
            unfinished = archive.with_suffix(".unfinished")
            run(libraries, (f"-XX:ArchiveClassesAtExit={unfinished}", *QUIET))
            if not unfinished.exists():
                return ()
            unfinished.rename(archive)
    return f"-XX:SharedArchiveFile={archive}", *QUIET


def _key(libraries: str) -> str:
    """Tells apart the jars, which an archive names with their paths, and the Java that reads it."""
    java = Path(shutil.which("java") or "java").resolve()
    files = [java, *sorted(Path(libraries).glob("*.jar"))]
    stats = [(str(file), stat.st_size, stat.st_mtime_ns) for file in files if (stat := os.stat(file))]
    return hashlib.sha256(repr(stats).encode()).hexdigest()[:12]
