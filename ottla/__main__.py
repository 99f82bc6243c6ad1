"""The launcher: finds the rooms (`broker`, `storage`, …) and hands over to the one that was asked for.

In a checkout the rooms stand beside this package. In a wheel they stand inside it, since people have packages of
their own that are called `config` or `broker`; only this process gets them on its import path.
"""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_ROOMS = _HERE if (_HERE / "broker").is_dir() else _HERE.parent


def main() -> int:
    """Run `ottla [run] [options]`; the exit code is the process's."""
    sys.path.insert(0, str(_ROOMS))
    arguments = sys.argv[1:]
    if arguments and not arguments[0].startswith("-"):
        command = arguments.pop(0)
        if command != "run":
            sys.stderr.write(f"ottla: there is no command {command!r}; there is: run\n")
            return 2
    from broker.__main__ import main as run_broker

    return run_broker(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
