"""Archives of Java classes are made once for each set of jars."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from dev import class_archive
from dev.class_archive import with_archive


@pytest.fixture(autouse=True)
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    archives = tmp_path / "archives"
    monkeypatch.setattr(class_archive, "ARCHIVES", archives)
    java = tmp_path / "java"
    java.touch()
    monkeypatch.setattr(class_archive.shutil, "which", lambda name: str(java))
    return archives


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    directory = tmp_path / "jars"
    directory.mkdir()
    (directory / "tools.jar").write_bytes(b"one")
    return directory


class Program:
    """Stands for a Java program: writes the archive that its options name, if its Java can."""

    def __init__(self, *, archives: bool = True) -> None:
        self.runs = 0
        self._archives = archives

    def __call__(self, libraries: str, options: Sequence[str]) -> None:
        self.runs += 1
        if self._archives:
            Path(options[0].removeprefix("-XX:ArchiveClassesAtExit=")).write_bytes(b"classes")


def test_an_archive_is_made_once_and_then_used(jars: Path, archives: Path) -> None:
    program = Program()

    first = with_archive("tools", str(jars), program)
    with_archive.cache_clear()  # another process
    again = with_archive("tools", str(jars), program)

    (made,) = archives.glob("*.jsa")
    assert first == again == (f"-XX:SharedArchiveFile={made}", *class_archive.QUIET)
    assert program.runs == 1


def test_other_jars_have_an_archive_of_their_own(jars: Path) -> None:
    program = Program()
    before = with_archive("tools", str(jars), program)
    os.utime(jars / "tools.jar", ns=(0, 0))
    with_archive.cache_clear()

    assert with_archive("tools", str(jars), program) != before
    assert program.runs == 2


def test_a_java_that_archives_nothing_starts_without(jars: Path) -> None:
    assert with_archive("tools", str(jars), Program(archives=False)) == ()
