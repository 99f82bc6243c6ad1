"""What CI leaves out because it has not changed: only what certainly has not."""

import subprocess
from pathlib import Path

import pytest

from dev.changed import BASE, changes


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
        path.parent.mkdir(exist_ok=True)
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
