"""What the brokers that a test has used had to say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dev.broker_process import BrokerProcess


def logs_of(fixtures: Mapping[str, Any], *, last_lines: int) -> Iterator[tuple[str, str]]:
    """The log of each broker among a test's fixtures and of each node of a cluster, with what to call the log."""
    for name, value in fixtures.items():
        cluster = getattr(value, "cluster", value)
        if isinstance(value, BrokerProcess):
            yield f"log of the broker in '{name}'", value.log_text(last_lines=last_lines)
        elif isinstance(nodes := getattr(cluster, "nodes", None), dict):
            for node_id, node in nodes.items():
                yield f"log of node {node_id} in '{name}'", node.log_text(last_lines=last_lines)
