"""What the connections to other nodes have counted."""


class PeerStats:
    """Counters of one peer, or of several that are counted together."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "connections_closed",
        "connections_failed",
        "connections_made",
        "requests_answered",
        "requests_in_flight",
        "requests_sent",
        "requests_timed_out",
    )

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return self.connections_made - self.connections_closed

    def __init__(self) -> None:
        self.connections_made = 0
        self.connections_failed = 0
        """Attempts that made no connection."""
        self.connections_closed = 0
        """By either end."""
        self.requests_sent = 0
        self.requests_answered = 0
        """An answer that nobody waits for any more counts, too; one that cannot be read does not."""
        self.requests_timed_out = 0
        """Sent, and not answered in time."""
        self.requests_in_flight = 0
        self.bytes_in = 0
        self.bytes_out = 0
