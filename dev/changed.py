"""Whether a part of the tree has changed since all of CI has passed: `python -m dev.changed storage protocol`.

`.ci/base` names the commit at which everything has passed. If that commit is not in this clone, or git fails for
another reason, everything counts as changed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dev.broker_process import REPOSITORY

BASE = ".ci/base"


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


def _git(repository: Path, *words: str) -> str | None:
    """The output of git; None if git fails."""
    try:
        done = subprocess.run(["git", *words], cwd=repository, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


if __name__ == "__main__":
    if reason := changes(sys.argv[1:]):
        sys.stdout.write(f"{reason}\n")
    else:
        raise SystemExit(1)
