"""`ottla cluster`: commands for a node that becomes a member of a cluster."""

import argparse
from collections.abc import Sequence

from broker.tools.handover import add_handover_options, run_handover
from config.settings_options import add_settings_options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ottla cluster handover`; return the exit code of the command."""
    options = _parser().parse_args(arguments)
    code: int = options.run(options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla cluster", description="Move a node into a cluster of Apache Kafka's controllers."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    handover = commands.add_parser(
        "handover",
        help="write the directory from which an Apache Kafka controller takes over the metadata of a stopped node",
        description="Write a directory from which an Apache Kafka controller takes over the metadata of a single node "
        "that was stopped in order. Nothing of the node's own directories is changed.",
        epilog="exit code: 0 if DIR is written; 1 if not, with the reason on stderr; 2 for bad usage",
    )
    _add_settings_options(handover)
    add_handover_options(handover)
    handover.set_defaults(run=run_handover)
    return parser


def _add_settings_options(parser: argparse.ArgumentParser) -> None:
    add_settings_options(parser)
    parser.add_argument("-c", dest="config", metavar="FILE", help="the same as --config")
