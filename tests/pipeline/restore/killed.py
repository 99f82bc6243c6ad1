"""`ottla pipeline restore` in a process that is killed at a step: `python killed.py STEP WHICH restore ...`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from dev.repository import REPOSITORY
from pipeline.__main__ import _parser
from pipeline.errors import PipelineError
from pipeline.restore.command import restore


def kill_at(step: str, which: int, *words: str) -> bool:
    """Run the command until it has made this step for the `which`-th time; whether it came so far, and was killed."""
    done = subprocess.run(
        [sys.executable, __file__, step, str(which), "restore", *words],
        cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


def main(step: str, which: int, words: list[str]) -> int:
    left = which

    def at(made: str) -> None:
        nonlocal left
        if made == step:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        return restore(_parser("restore").parse_args(words), at)
    except PipelineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    assert Path.cwd() == REPOSITORY
    raise SystemExit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
