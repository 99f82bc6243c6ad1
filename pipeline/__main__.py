"""`ottla pipeline` (in a checkout `python -m pipeline`): runs a command and returns its exit code."""

import argparse
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NamedTuple

from pipeline.errors import NOT_DONE, PipelineError
from pipeline.requirements import require_libraries

_INTERRUPTED: Final = 130
"""The exit code of a process that SIGINT has ended, as shells number it."""


class _Command(NamedTuple):
    module: str
    """The name of the command's module. The module has `add_options(parser)` and `run(options)`, which returns the exit
    code and may raise PipelineError."""
    help: str


_COMMANDS: Final = {
    "archive": _Command("pipeline.archive.command", "copy topics to Parquet, each record exactly once"),
    "restore": _Command("pipeline.restore.command", "bring archived topics back, as segments or by producing"),
    "audit": _Command("pipeline.audit.command", "check every batch, index and transaction of topics"),
    "stats": _Command("pipeline.stats.command", "sizes, rates, key skew, compression and lag of topics"),
    "sql": _Command("pipeline.sql", "query topics"),
    "mirror": _Command("pipeline.mirror", "copy topics to another Kafka, at least once"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ottla pipeline COMMAND [options]`. Returns the exit code: 0 success, 1 the data are damaged, 2 the work
    could not be done."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0] if words and words[0] in _COMMANDS else None
    try:
        if name is not None:
            # A command says its options with what it imports.
            require_libraries()
        options = _parser(name).parse_args(words)
        code: int = options.run(options)
    except PipelineError as error:
        sys.stderr.write(f"ottla pipeline{'' if name is None else f' {name}'}: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    except MemoryError:
        sys.stderr.write(f"ottla pipeline {name}: this machine has too little memory for it\n")
        return NOT_DONE
    except Exception:  # noqa: BLE001
        # A fault of ours. Uncaught it would end with 1, as if data were damaged.
        traceback.print_exc()
        return NOT_DONE
    return code


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    """The parser of all commands. Only the chosen command's module is imported, so only the chosen command has its
    options."""
    parser = argparse.ArgumentParser(
        prog="ottla pipeline", description="Archive, restore, check and query topics with Spark."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (module, help_line) in _COMMANDS.items():
        command = commands.add_parser(name, help=help_line, description=f"{help_line[0].upper()}{help_line[1:]}.")
        if name == chosen:
            implementation = import_module(module)
            implementation.add_options(command)
            # What a command's own parsers have set, stays.
            if command.get_default("run") is None:
                command.set_defaults(run=implementation.run)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
