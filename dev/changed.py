"""Whether a part of the tree has changed since all of CI has passed: `python -m dev.changed docs --used-by pipeline`.

The part is made of the files and folders that are named, and with `--used-by` of the folders named there and every
file that their modules import, directly or over others. `--apart-from` names files and folders that do not count, nor
what only their modules import.

`.ci/base` names the commit at which everything has passed. If that commit is not in this clone, or git fails for
another reason, everything counts as changed. Exit code 3 says that nothing has changed; every other code, that of a
crash included, means that it has or may have.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dev.imports import PACKAGES, imports_of, reached
from dev.repository import REPOSITORY

BASE = ".ci/base"
UNCHANGED = 3
"""The exit code for it: not 1, with which Python ends after an exception."""


def changes(paths: Sequence[str], repository: Path = REPOSITORY) -> str:
    """The reason why these files and folders count as changed, in a few words; empty if they have not changed."""
    try:
        base = (repository / BASE).read_text().split()[0]
    except (OSError, IndexError):
        return f"there is no {BASE}"
    if _git(repository, "merge-base", "--is-ancestor", base, "HEAD") is None:
        return f"{base} is no commit before this one"
    # Against the working tree: what is not committed yet counts, too.
    changed = _git(repository, "diff", "--name-only", base, "--", *paths)
    untracked = _git(repository, "ls-files", "--others", "--exclude-standard", "--", *paths)
    if changed is None or untracked is None:
        return "git failed"
    files = [*changed.splitlines(), *untracked.splitlines()]
    return f"{files[0]} and {len(files) - 1} more have changed since {base}" if files else ""


def used_by(folders: Sequence[str], apart_from: Sequence[str] = (), repository: Path = REPOSITORY) -> list[str]:
    """These folders, and the files elsewhere that modules in them import. Raises ValueError if nothing is there.

    The imports as they are now suffice. If a file was imported when everything passed and is not any more, or is gone,
    then a file on the way to it has changed, and the first such file is imported still.
    """
    if missing := [place for place in (*folders, *apart_from) if not (repository / place).exists()]:
        raise ValueError(f"there is no {' and no '.join(missing)}")
    found = reached(imports_of(PACKAGES, repository), folders, apart_from=apart_from)
    return [*folders, *sorted(found)]


def _git(repository: Path, *words: str) -> str | None:
    """The output of git; None if git fails."""
    try:
        done = subprocess.run(["git", *words], cwd=repository, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print why the part counts as changed and return 0; return 3 if it has not changed."""
    parser = argparse.ArgumentParser(prog="python -m dev.changed", description="Has it changed since all of CI passed?")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files and folders")
    parser.add_argument("--used-by", nargs="+", default=[], metavar="FOLDER", help="and all that their modules import")
    parser.add_argument("--apart-from", nargs="+", default=[], metavar="PATH", help="imports that do not count")
    given = parser.parse_args(arguments)
    try:
        paths = [*given.paths, *(used_by(given.used_by, given.apart_from) if given.used_by else ())]
    except (SyntaxError, ValueError) as error:
        reason = f"what is imported can not be said: {error}"
    else:
        # No path at all would ask git about the whole tree.
        reason = changes(paths) if paths else "nothing was named"
    if reason:
        sys.stdout.write(f"{reason}\n")
    return 0 if reason else UNCHANGED


if __name__ == "__main__":
    raise SystemExit(main())
