"""What CI leaves out because it has not changed: only what certainly has not."""

import subprocess
from pathlib import Path

import pytest

from dev.changed import BASE, UNCHANGED, changes, main, used_by
from dev.repository import REPOSITORY


class Repository:
    """A repository of git with one commit, at which everything has passed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.git("init", "--quiet")
        self.write("storage/log.py", "one")
        self.write("broker/log.py", "one")
        self.commit()
        self.write(BASE, self.git("rev-parse", "HEAD"))
        self.commit()

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", *who, *words], cwd=self.path, check=True, capture_output=True, text=True).stdout

    def write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "test")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_what_is_as_it_was_has_not_changed(repository: Repository) -> None:
    assert changes(["storage", "broker"], repository.path) == ""


def test_a_commit_changes_what_it_touches_and_nothing_else(repository: Repository) -> None:
    repository.write("broker/log.py", "other")
    repository.commit()

    assert changes(["storage"], repository.path) == ""
    assert "broker/log.py" in changes(["storage", "broker"], repository.path)


@pytest.mark.parametrize("name", ["storage/log.py", "storage/new.py"])
def test_what_is_not_committed_counts_too(repository: Repository, name: str) -> None:
    repository.write(name, "other")

    assert name in changes(["storage"], repository.path)


@pytest.mark.parametrize("base", ["", "0" * 40, "no commit"])
def test_without_a_base_everything_has_changed(repository: Repository, base: str) -> None:
    repository.write(BASE, base)

    assert changes(["storage"], repository.path)


def test_a_clone_without_the_base_has_changed(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> None:
    shallow = tmp_path_factory.mktemp("clone") / "shallow"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{repository.path}", str(shallow)], check=True)

    assert "is no commit before this one" in changes(["storage"], shallow)


READER = "from storage.log import Log\n\n\ndef rarely() -> None:\n    from storage import errors\n"


@pytest.fixture
def reader(repository: Repository) -> Repository:
    """A pipeline that reads logs: of the storage it imports the log, over it the files, and at first use the errors."""
    for name in ("storage/__init__.py", "storage/cleaning.py", "storage/errors.py", "storage/files.py"):
        repository.write(name, "")
    repository.write("storage/log.py", "import storage.files")
    repository.write("pipeline/reading/source.py", READER)
    repository.commit()
    repository.write(BASE, repository.git("rev-parse", "HEAD"))
    repository.commit()
    return repository


def changes_for_the_reader(reader: Repository, *apart_from: str) -> str:
    return changes(used_by(["pipeline"], apart_from, reader.path), reader.path)


def test_what_nobody_imports_does_not_count(reader: Repository) -> None:
    reader.write("storage/cleaning.py", "other")
    reader.write("storage/new.py", "other")

    assert changes_for_the_reader(reader) == ""
    assert "storage/cleaning.py" in changes(["storage"], reader.path)


@pytest.mark.parametrize("name", ["log.py", "files.py", "errors.py", "__init__.py"])
def test_what_is_imported_counts_directly_over_others_inside_functions_and_as_a_package(
    reader: Repository, name: str
) -> None:
    reader.write(f"storage/{name}", "import os")

    assert f"storage/{name}" in changes_for_the_reader(reader)


def test_the_folder_itself_counts_with_what_is_no_module(reader: Repository) -> None:
    reader.write("pipeline/page.html", "new")

    assert "pipeline/page.html" in changes_for_the_reader(reader)


def test_an_import_that_is_gone_counts_by_the_file_that_had_it(reader: Repository) -> None:
    reader.write("storage/log.py", "")
    (reader.path / "storage/files.py").unlink()

    assert "storage/log.py" in changes_for_the_reader(reader)


def test_a_module_in_place_of_a_name_of_its_package_counts(reader: Repository) -> None:
    reader.write("pipeline/reading/source.py", "from storage.batch import walk")
    reader.write("storage/batch/__init__.py", "walk = 1")
    reader.commit()
    reader.write(BASE, reader.git("rev-parse", "HEAD"))
    reader.write("storage/batch/walk.py", "")

    assert "storage/batch/walk.py" in changes_for_the_reader(reader)


def test_what_is_set_apart_is_not_followed(reader: Repository) -> None:
    reader.write("storage/files.py", "other")

    assert changes_for_the_reader(reader, "storage/log.py") == ""


def test_a_folder_that_is_not_there_is_told(reader: Repository) -> None:
    with pytest.raises(ValueError, match="there is no pipelines and no brokers"):
        used_by(["pipeline", "pipelines"], ["brokers"], reader.path)


@pytest.mark.parametrize("words", [["--used-by", "nowhere"], [], ["--apart-from", "broker"]])
def test_a_question_that_names_nothing_counts_as_a_change(words: list[str]) -> None:
    assert main(words) == 0


def test_only_its_own_exit_code_says_that_nothing_has_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []
    monkeypatch.setattr("dev.changed.changes", asked.append)

    assert main(["docs", "--used-by", "pipeline", "--apart-from", "broker"]) == UNCHANGED
    assert UNCHANGED not in (0, 1, 2)
    assert {"docs", "pipeline", "storage/log.py", "protocol/primitives.py"} <= set(asked[0])
    assert not any(path.startswith("broker") for path in asked[0])
    assert f"-ne {UNCHANGED} ]" in (REPOSITORY / ".ci/run").read_text()
