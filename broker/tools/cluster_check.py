"""`ottla cluster check`: asks the controllers of a cluster, and says whether this node can join it."""

import argparse
import asyncio
import logging
import sys
from typing import Final

from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.tools.cluster_survey import ClusterSurvey, survey_cluster
from broker.tools.join_check import FAULT, WARNING, JoiningNode, check_join
from broker.tools.output import Entry, json_line, run_until_output_closes
from config.broker_settings import BrokerSettings
from config.errors import SettingsError
from config.quorum import BOOTSTRAP_SERVERS, controller_addresses
from config.settings_options import settings_of
from storage.checkpoints import META_PROPERTIES, read_meta_properties
from storage.errors import StorageError
from storage.files import FileSystem

CAN_JOIN: Final = 0
CANNOT_JOIN: Final = 1
NOT_CHECKED: Final = 2


def add_check_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to ``parser``, which has those of the settings already."""
    parser.add_argument(
        "--controllers", metavar="HOST:PORT,…",
        help=f"the controllers to ask (default: {BOOTSTRAP_SERVERS} of the settings)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run_check(options: argparse.Namespace) -> int:
    """Print a line for each verdict. The exit code: 0 if the node can join, 1 if not, 2 if that is not known."""
    if options.controllers is not None:
        options.override.append(f"{BOOTSTRAP_SERVERS}={options.controllers}")
    try:
        settings = settings_of(options).settings
        addresses = [
            PeerEndpoint(UNKNOWN_ID if address.node_id is None else address.node_id, address.host, address.port)
            for address in controller_addresses(settings)
        ]
        if not addresses:
            return _not_checked(f"--controllers, or {BOOTSTRAP_SERVERS} of the settings, must name the controllers")
        node = _joining_node(FileSystem(), settings)
    except (SettingsError, StorageError) as error:
        return _not_checked(str(error))
    # What cannot be reached is among the verdicts.
    logging.getLogger("broker").addHandler(logging.NullHandler())
    survey = asyncio.run(survey_cluster(addresses))
    if not survey.answered:
        return _not_checked("no controller answers: " + "; ".join(one.problem for one in survey.asked))
    return run_until_output_closes(lambda: _print_verdicts(node, survey, as_json=options.json))


def _joining_node(files: FileSystem, settings: BrokerSettings) -> JoiningNode:
    """Raises WrongDirectory, LogDirFailed."""
    paths = dict.fromkeys((*settings.log_dirs, settings.metadata_directory))
    return JoiningNode(
        node_id=settings.node_id,
        advertised=settings.advertised_listeners,
        inter_broker_listener=settings.inter_broker_listener,
        directories={path: read_meta_properties(files, f"{path}/{META_PROPERTIES}") for path in paths},
    )


def _print_verdicts(node: JoiningNode, survey: ClusterSurvey, *, as_json: bool) -> int:
    counts = {FAULT: 0, WARNING: 0}
    for verdict in check_join(node, survey):
        if verdict.kind in counts:
            counts[verdict.kind] += 1
        if as_json:
            fields = {"about": verdict.about, "found": verdict.found, "remedy": verdict.remedy}
            print(json_line(Entry(verdict.kind, fields)))
        else:
            print(verdict)
    can_join = not counts[FAULT]
    if as_json:
        result = {"can_join": can_join, "faults": counts[FAULT], "warnings": counts[WARNING]}
        print(json_line(Entry("summary", result)))
    else:
        can = "can" if can_join else "cannot"
        found = f"{counts[FAULT]} faults, {counts[WARNING]} warnings"
        print(f"node {node.node_id} {can} join cluster {survey.cluster_id}: {found}")
    return CAN_JOIN if can_join else CANNOT_JOIN


def _not_checked(sentence: str) -> int:
    sys.stderr.write(f"ottla cluster check: {sentence}\n")
    return NOT_CHECKED
