"""Where another node is reached."""

from typing import Final, NamedTuple

UNKNOWN_ID: Final = -1
"""The id of a node of which only an address is known: one of the bootstrap servers."""


class PeerEndpoint(NamedTuple):
    """The address of one listener of a node."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        node = "the node" if self.node_id == UNKNOWN_ID else f"node {self.node_id}"
        return f"{node} at {host}:{self.port}"
