"""Where the broker asks what its role is: alone or not, with its controller in its process or elsewhere.

A broker talks to its controller through a channel, and lives by the same code wherever the controller is. The places
that look at the role all the same stand here, with their reasons.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Final

BROKER: Final = Path(__file__).resolve().parents[3] / "broker"

ROLES: Final = {
    "controller",
    "controller_listener",
    "controllers",
    "is_member",
    "membership",
    "metadata_log",
    "own_controller",
    "replication",
}
"""The names of what only one role has."""

ALONE: Final = "a Partition without other replicas is cheap"
DIRECTORY: Final = "a node with a controller of its own has its metadata log in the directory; a member has none"
METRICS: Final = "these series are only there where what they count is"
OFFERED: Final = "what only a node with a controller of its own offers"
SERVED: Final = "what a listener serves, and what is forwarded"

FORKS: Final = {
    "control/command_line.py": (1, OFFERED),
    "handlers/quorum.py": (1, SERVED),
    "metrics/controller.py": (1, METRICS),
    "metrics/fetchers.py": (1, METRICS),
    "metrics/membership.py": (1, METRICS),
    "metrics/metadata.py": (3, METRICS),
    "metrics/peers.py": (1, METRICS),
    "metrics/survey.py": (3, METRICS),
    "replication/follower.py": (5, ALONE),
    "replication/replica_manager.py": (4, ALONE),
    "server/apis.py": (1, SERVED),
    "server/broker_server.py": (
        9,
        "what a controller listener serves (4), tokens and topics that this node's controller makes (2), the metadata "
        "log is counted and closed (2), others may take over before the requests under way are answered (1)",
    ),
    "server/cluster_opening.py": (2, "the metadata log is opened, or followed"),
    "server/command_line.py": (1, OFFERED),
    "server/handlers.py": (3, SERVED),
    "server/log_dir_checks.py": (1, DIRECTORY),
    "server/log_dirs.py": (7, DIRECTORY),
    "server/replica_assignment.py": (2, "controllers elsewhere may assign replicas while this node is away"),
    "server/startup.py": (
        6,
        "a member registers before it loads its logs, a node with a controller afterwards (2), there may be other "
        "brokers (2), controllers elsewhere may assign replicas while this node is away (2)",
    ),
    "tools/cluster_check.py": (1, "the tool asks controllers or brokers"),
}
"""By module: how many places, and why."""


def test_the_places_that_look_at_the_role_are_these() -> None:
    found = {module: number for module, number in sorted(_forks().items()) if number}
    assert found == {module: number for module, (number, _) in FORKS.items()}


def test_there_are_fewer_of_them_than_before_brokers_had_a_channel() -> None:
    assert sum(number for number, _ in FORKS.values()) < 87


def _forks() -> Counter[str]:
    found: Counter[str] = Counter()
    for path in BROKER.rglob("*.py"):
        tree = ast.parse(path.read_text())
        found[str(path.relative_to(BROKER))] = sum(_is_fork(node) for node in ast.walk(tree))
    return found


def _is_fork(node: ast.AST) -> bool:
    """Whether a part of a role is compared with None, or the role itself is read."""
    if isinstance(node, ast.Compare):
        against_none = any(isinstance(one, ast.Constant) and one.value is None for one in node.comparators)
        return against_none and _name(node.left) in ROLES
    return isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load) and _name(node) == "is_member"


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr.lstrip("_")
    if isinstance(node, ast.NamedExpr):
        return _name(node.value)
    return node.id.lstrip("_") if isinstance(node, ast.Name) else ""
