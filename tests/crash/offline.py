"""The offline check of a data directory that no broker works in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from dev.repository import REPOSITORY
from tests.crash.promises import Promise, require

_UNKNOWN_COMMAND: Final = 2


def verify(data_directory: Path) -> str:
    """Let `ottla verify` look at a directory; PromiseBroken if it finds anything. Returns why it did not look."""
    command = [sys.executable, "-m", "ottla", "verify", str(data_directory)]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False)
    if result.returncode == _UNKNOWN_COMMAND and "no command 'verify'" in result.stderr:
        return "there is no `ottla verify` yet"
    require(result.returncode == 0, Promise.VERIFY, f"exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return ""
