"""Checking out another commit of this repository for as long as it is measured."""

from __future__ import annotations

import compileall
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import IS_COMPILED, REPOSITORY


def resolved(commit: str) -> str | None:
    """The short hash of a commit in this checkout's history; None where the history does not have the commit, or there
    is no git."""
    return git("rev-parse", "--verify", "--quiet", "--short=12", f"{commit}^{{commit}}")


def git(*words: str) -> str | None:
    """The output of a git command; None where git fails or is missing."""
    if shutil.which("git") is None:
        return None
    done = subprocess.run(["git", *words], check=False, cwd=REPOSITORY, capture_output=True, text=True)
    return None if done.returncode else done.stdout.strip()


def name_of_this() -> str:
    """The commit of this checkout. If files differ from it, a hash of the differences is part of the name."""
    commit = git("rev-parse", "--short=12", "HEAD")
    if commit is None:
        return "unknown"
    changes = git("diff", "HEAD", "--", "*.py", "config")
    return f"{commit}+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else commit


@contextmanager
def checkout_of(commit: str, directory: Path) -> Iterator[Path]:
    """The tree of ``commit`` in a new ``directory``, which is removed afterwards."""
    directory.mkdir(parents=True)
    try:
        archive = subprocess.run(["git", "archive", commit], cwd=REPOSITORY, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "x", "-C", str(directory)], input=archive, check=True)
        yield directory
    finally:
        shutil.rmtree(directory)


def packages_of(checkout: Path, directory: Path) -> Path:
    """The directory to run that commit's broker from: compiled into ``directory`` if the commit can be compiled and our
    broker is compiled, else the checkout. It has the modules' bytecode, as what a user runs has it."""
    packages = checkout
    if IS_COMPILED and (checkout / "compiled").is_dir():
        packages = directory
        subprocess.run([sys.executable, "-m", "compiled", str(directory)], cwd=checkout, check=True)
    compileall.compile_dir(packages, quiet=2)
    return packages
