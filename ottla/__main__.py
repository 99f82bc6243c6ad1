"""The launcher: finds the packages (`broker`, `storage`, …) and runs a command.

In a checkout the packages are beside this one. In a wheel they are inside it, since users have packages of
their own that are called `config` or `broker`; only this process gets them on its import path.
"""

import sys
from importlib import import_module
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_ROOMS = _HERE if (_HERE / "broker").is_dir() else _HERE.parent


_COMMANDS = {
    "run": "broker.__main__",
    "dump": "broker.tools.dump",
    "verify": "broker.tools.verify",
    "health": "broker.tools.health",
    "cluster": "broker.tools.cluster",
    "features": "broker.tools.features",
    "cert": "broker.tools.cert",
    "pipeline": "pipeline.__main__",
}
"""The module of each command. It has a function `main`, which takes the arguments behind the command and returns the
exit code."""

_FOR_OUR_PROGRAMS = {"test-server": "broker.control.zygote"}
"""Commands that `ottla.testing` starts, and nobody types."""


def main() -> int:
    """Run `ottla [COMMAND] [options]`; without a command the broker. Returns the exit code of the process."""
    sys.path.insert(0, str(_ROOMS))
    arguments = sys.argv[1:]
    command = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "run"
    commands = {**_COMMANDS, **_FOR_OUR_PROGRAMS}
    if command not in commands:
        sys.stderr.write(f"ottla: there is no command {command!r}; there are: {', '.join(_COMMANDS)}\n")
        return 2
    exit_code: int = import_module(commands[command]).main(arguments)
    return exit_code


if __name__ == "__main__":
    raise SystemExit(main())
