"""An archive of Kafka's classes as a JVM has them in memory (class data sharing, JEP 350). Brokers and tools of Kafka
that start with it need about 60 % of the processor time that they need otherwise.

An archive holds for one Java and one directory of jars, so its file name has a fingerprint of both: a JVM refuses an
archive that was made by another Java or of other jars. `python -m dev.archive_classes` makes it.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Final

from dev.broker_process import REPOSITORY

DIRECTORY: Final = REPOSITORY / ".kafka"


def archive_of(libraries: str, java: str) -> Path:
    """Where the archive is for this directory of jars and this program; it may not have been made. Raises OSError if
    the directory or the program is not there."""
    files = [Path(java).resolve(), *sorted(Path(libraries).iterdir())]
    stamps = [(str(file), status.st_size, status.st_mtime_ns) for file in files for status in [file.stat()]]
    fingerprint = hashlib.sha256(repr(stamps).encode()).hexdigest()[:12]
    return DIRECTORY / f"classes-{Path(libraries).name}-{fingerprint}.jsa"


def using(archive: Path) -> list[str]:
    """The options with which `java` takes classes from an archive.

    What the JVM itself says goes to stderr: on stdout a warning about the archive would stand in the output of a tool.
    """
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable", "-Xlog:all=error:stderr"]


def using_archive(libraries: str) -> list[str]:
    """The options with which `java` takes Kafka's classes from the archive; none if no archive was made."""
    try:
        archive = archive_of(libraries, shutil.which("java") or "java")
    except OSError:
        return []
    return using(archive) if archive.exists() else []
