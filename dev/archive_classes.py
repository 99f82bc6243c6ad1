"""`python -m dev.archive_classes [DIRECTORY ...]`: makes the archive of Kafka's classes that `dev.class_archive` finds.

Kafka runs once for it, for some seconds, and the JVM writes the classes that it has loaded by then when it ends.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dev.apache_kafka import ApacheKafka
from dev.broker_process import BrokerDidNotStart
from dev.class_archive import DIRECTORY, archive_of, using
from dev.kafka_jars import DIRECTORY_VERSIONS, NoKafka, libraries
from dev.maven import one_at_a_time

PATIENCE_S = 180.0


class NoArchive(Exception):
    """This Java makes no archive of these jars; the message says why. Kafka starts without it, with more work."""


class _Recorded(ApacheKafka):
    """A Kafka that writes an archive of its classes when it ends."""

    heap = "512M"
    quick_start = True

    def command(self) -> list[str]:
        java, *words = super().command()
        return [java, f"-XX:ArchiveClassesAtExit={self.archive}", "-Xlog:disable", *words]

    @property
    def archive(self) -> Path:
        return self.directory / "classes.jsa"


def make(jars: str) -> Path:
    """The archive for a directory of jars, made unless it is there. Raises NoArchive."""
    java = shutil.which("java")
    if java is None:
        raise NoArchive("there is no 'java' on the path")
    archive = archive_of(jars, java)
    with one_at_a_time(DIRECTORY):
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=DIRECTORY) as directory:
                made = _record(Path(directory), jars)
                _verify(made, jars)
                for outdated in DIRECTORY.glob(f"classes-{Path(jars).name}-*.jsa"):
                    outdated.unlink()
                made.rename(archive)
    return archive


def _record(directory: Path, jars: str) -> Path:
    kafka = _Recorded(directory, settings=None, port=0, libraries=jars)
    try:
        kafka.start()
        kafka.stop(timeout_s=PATIENCE_S)
    except (BrokerDidNotStart, AssertionError, subprocess.SubprocessError) as reason:
        raise NoArchive(str(reason)) from None
    finally:
        kafka.close()
    if not kafka.archive.exists():
        raise NoArchive(f"Kafka ended without writing it\n{kafka.log_text(last_lines=10)}")
    return kafka.archive


def _verify(archive: Path, jars: str) -> None:
    """Raises NoArchive if the JVM does not take the archive, which it would not tell when Kafka starts."""
    command = ["java", *using(archive), "-Xshare:on", "-cp", f"{jars}/*", "kafka.Kafka", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode:
        raise NoArchive(f"Java does not take what it has written: {done.stdout}{done.stderr}")


def main(directories: Sequence[str]) -> int:
    """Make the archives for these directories of jars; by default for the versions of Kafka that tests exchange
    directories with. Returns 0 whether or not there is an archive then."""
    for name in directories or DIRECTORY_VERSIONS:
        try:
            jars = name if directories else str(libraries(name))
            sys.stderr.write(f"The classes of {jars} are archived in {make(jars)}.\n")
        except (NoKafka, NoArchive) as reason:
            sys.stderr.write(f"Kafka {name} starts without an archive of its classes: {reason}.\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
