"""Fetching the jars that a Maven project file names, once."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class NoJars(Exception):
    """Jars cannot be had here; the message says why, and what would help."""


def fetch(project: Path, directory: Path, *properties: str, instead: str) -> None:
    """Fill a directory with the jars of a Maven project file. Raises `NoJars`, whose message names the alternative
    ``instead``."""
    if shutil.which("mvn") is None:
        raise NoJars(f"there is no 'mvn' on the path: install Maven, or name a directory with the jars by {instead}")
    with one_at_a_time(directory.parent):
        if not directory.exists():  # else another process has fetched them meanwhile
            _fetch(project, directory, *properties)


def _fetch(project: Path, directory: Path, *properties: str) -> None:
    half = directory.with_suffix(".part")
    shutil.rmtree(half, ignore_errors=True)
    command = ["mvn", "-B", "-q", "--strict-checksums", "-f", str(project), *properties]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={half}"]
    sys.stderr.write(f"Fetching what {project.name} names into {directory} ...\n")
    done = subprocess.run(command, check=False, stdout=sys.stderr)
    if done.returncode:
        raise NoJars(f"Maven ended with exit code {done.returncode}; what it said stands above")
    half.rename(directory)


@contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """A context in which no other process fills this directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def checked(directory: Path, sha256: Mapping[str, str]) -> list[Path]:
    """The paths of jars by name, after their checksums were compared. Raises `NoJars`."""
    for name, expected in sha256.items():
        path = directory / name
        if not path.exists():
            raise NoJars(f"there is no {path}")
        if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != expected:
            raise NoJars(f"{path} has the SHA-256 {found}, expected {expected}: remove it")
    return [directory / name for name in sha256]
