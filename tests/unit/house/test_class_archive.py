"""The archive of Kafka's classes: of this Java and these jars, or none."""

from pathlib import Path

import pytest

from dev import class_archive


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of jars, and a Java on the path."""
    monkeypatch.setattr(class_archive, "DIRECTORY", tmp_path / "archives")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "java").write_text("#!/bin/sh")
    (tmp_path / "java").chmod(0o755)
    (tmp_path / "archives").mkdir()
    jars = tmp_path / "4.4.0"
    jars.mkdir()
    (jars / "kafka-clients-4.4.0.jar").write_text("classes")
    return jars


def made(jars: Path) -> Path:
    archive = class_archive.archive_of(str(jars), str(jars.parent / "java"))
    archive.touch()
    return archive


def test_java_starts_as_always_while_there_is_no_archive(jars: Path) -> None:
    assert class_archive.using_archive(str(jars)) == []


def test_java_starts_with_the_archive_of_its_jars(jars: Path) -> None:
    archive = made(jars)

    assert f"-XX:SharedArchiveFile={archive}" in class_archive.using_archive(str(jars))


@pytest.mark.parametrize("changed", ["java", "4.4.0/kafka-clients-4.4.0.jar", "4.4.0/another.jar"])
def test_an_archive_of_another_java_or_of_other_jars_is_not_used(jars: Path, changed: str) -> None:
    made(jars)

    (jars.parent / changed).write_text("new and longer")

    assert class_archive.using_archive(str(jars)) == []


def test_jars_that_are_not_there_have_no_archive(jars: Path) -> None:
    assert class_archive.using_archive(str(jars / "missing")) == []


def test_without_java_there_is_no_archive(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(jars)
    monkeypatch.setenv("PATH", "")

    assert class_archive.using_archive(str(jars)) == []
