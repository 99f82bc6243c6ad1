"""Copies of the packages in a directory, with their compiled modules beside the sources."""

import compileall
import filecmp
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from compiled.hot_path import HOT_PATH

REPOSITORY: Final = Path(__file__).resolve().parents[1]

_PACKAGES: Final = ("broker", "compiled", "config", "ottla", "pipeline", "protocol", "pyspark_ottla", "storage")
_BUILD: Final = "build"
"""Below the directory: what the compilers keep between two runs, and what they have said."""
_OUTCOME: Final = f"{_BUILD}/outcome.txt"
"""Written when they are through: empty, or why they failed."""


class NotCompiled(Exception):
    """The packages could not be compiled and run as Python; the sentence says why."""


def compile_packages(directory: Path) -> None:
    """Bring the packages in ``directory`` up to date. Raises `NotCompiled`: they are there, and nothing is compiled."""
    outcome = directory / _OUTCOME
    try:
        if (reason := _why_not()) is not None:
            outcome.unlink(missing_ok=True)  # of a time when there was a compiler
            raise NotCompiled(reason)
        if not (is_current(directory) and outcome.exists()):
            outcome.unlink(missing_ok=True)
            _mirror(directory)
            outcome.write_text(_compile(directory))
        if reason := outcome.read_text():
            raise NotCompiled(reason)
    except NotCompiled:
        _mirror(directory)
        for extension in extensions(directory):
            extension.unlink()
        raise
    finally:
        # By itself Python writes none where PYTHONDONTWRITEBYTECODE is set, and then each start would compile anew.
        for package in _PACKAGES:
            compileall.compile_dir(directory / package, quiet=2)


def extensions(directory: Path) -> list[Path]:
    """What is compiled in there."""
    return [path for path in directory.rglob("*.so") if _BUILD not in path.relative_to(directory).parts]


def is_current(directory: Path) -> bool:
    """Whether the packages in ``directory`` are those of this checkout."""
    wanted = _sources(REPOSITORY)
    return wanted == _sources(directory) and all(_is_same(directory, path) for path in wanted)


def _sources(tree: Path) -> set[Path]:
    return {
        path.relative_to(tree)
        for package in _PACKAGES
        for path in (tree / package).rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so")
    }


def _is_same(directory: Path, path: Path) -> bool:
    return filecmp.cmp(REPOSITORY / path, directory / path, shallow=False)


def _mirror(directory: Path) -> None:
    """Copy what differs. What has not changed keeps its time, by which it is known that nothing is to be done."""
    wanted, there = _sources(REPOSITORY), _sources(directory)
    for path in there - wanted:
        (directory / path).unlink()
    for path in wanted:
        if path not in there or not _is_same(directory, path):
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / path, directory / path)


def _why_not() -> str | None:
    """Why this machine cannot compile for this Python, if it cannot."""
    if sys.implementation.name != "cpython":
        return f"mypyc compiles for CPython, and this is {sys.implementation.name}"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        return f"Python's headers are not in {headers} (on Debian and Ubuntu: apt install python3-dev)"
    return None


def _compile(directory: Path) -> str:
    """Why it failed, or nothing. Both compilers say much, and end their process where they find something."""
    said = directory / _BUILD / "said.txt"
    said.parent.mkdir(exist_ok=True)
    for extension in extensions(directory):
        # Of a module that is compiled no more, or for a Python that was here before.
        if extension.name.partition(".")[0] not in _NAMES or not extension.name.endswith(_SUFFIX):
            extension.unlink()
    with said.open("w") as output:
        done = subprocess.run(
            [sys.executable, REPOSITORY / "compiled" / "by_mypyc.py", *HOT_PATH],
            check=False, cwd=directory, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    if not done.returncode:
        return ""
    last = "\n".join(said.read_text(errors="replace").splitlines()[-3:])
    return f"the compiler failed, {said} has all that it said:\n{last}"


_SUFFIX: Final = str(sysconfig.get_config_var("EXT_SUFFIX"))
_NAMES: Final = {"ottla__mypyc", *(Path(path).stem for path in HOT_PATH)}
