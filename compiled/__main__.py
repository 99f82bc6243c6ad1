"""`python -m compiled DIRECTORY`: copies of the packages, their hot path compiled if that can be done.

What has not changed since the last time is not compiled again. Where there is no C compiler, or it fails, the copies
are made all the same, and a line says why they are slower; with ``--required`` that is an error (exit code 1).
"""

import argparse
import sys
from pathlib import Path

from compiled.packages import NotCompiled, compile_packages


def main() -> int:
    """Exit code 0, or 1 where it was required and cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m compiled", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--required", action="store_true", help="fail where it cannot be compiled")
    given = parser.parse_args()
    try:
        compile_packages(given.directory)
    except NotCompiled as reason:
        sys.stderr.write(f"The broker runs as it is written, not compiled, and slower for it: {reason}.\n")
        return int(given.required)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
