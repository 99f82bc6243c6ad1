"""`ottla cluster`: commands for a node that becomes a member of a cluster."""

import argparse
from collections.abc import Sequence

from broker.tools.cluster_check import add_check_options, run_check
from broker.tools.handover import add_handover_options, run_handover
from config.settings_options import add_settings_options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ottla cluster handover` or `ottla cluster check`; return the exit code of the command."""
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
    check = commands.add_parser(
        "check",
        help="say whether this node can join the cluster of controllers elsewhere",
        description="Ask the controllers of a cluster, and say whether the node with these settings can join it. "
        "Nothing is changed, neither here nor there.",
        epilog="exit code: 0 if the node can join, also with warnings; 1 if it cannot; 2 for bad usage, or if no "
        "controller has answered, or the settings or the data directories cannot be read",
    )
    _add_settings_options(check)
    add_check_options(check)
    check.set_defaults(run=run_check)
    return parser


def _add_settings_options(parser: argparse.ArgumentParser) -> None:
    add_settings_options(parser)
    parser.add_argument("-c", dest="config", metavar="FILE", help="the same as --config")
