"""This node as clients see it: its ids, and the address of each listener."""

from collections.abc import Mapping
from typing import Final, NamedTuple

NO_NODE: Final = -1
"""Instead of a node's id: none is known."""
NO_PORT: Final = -1


class Endpoint(NamedTuple):
    """An advertised address."""

    host: str
    port: int


class Node:
    """This broker's identity. Addresses differ by the listener that a request came in on."""

    __slots__ = ("cluster_id", "endpoints", "node_id", "rack")

    def __init__(self, *, node_id: int, cluster_id: str, rack: str | None, endpoints: Mapping[str, Endpoint]) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.rack = rack
        self.endpoints = endpoints
        """Advertised address by listener name."""
