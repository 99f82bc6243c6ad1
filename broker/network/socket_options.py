"""What we ask of the system for our sockets, and the only place that knows which systems have it."""

import socket
from typing import Final, NamedTuple

MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)
"""Linux: more follows at once, so do not send a small packet for this. Elsewhere nothing."""

_TCP_CONGESTION: Final[int | None] = getattr(socket, "TCP_CONGESTION", None)

_UNPACED: Final = (b"cubic", b"reno")
"""Congestion controls that do not pace: as fast as loopback is."""


PACED_SEND_BUFFER_BYTES: Final = 262_144
"""Where pacing cannot be helped, the size that large answers are fastest with (docs/decisions/sockets.md)."""


class SocketOptions(NamedTuple):
    """Buffer sizes in bytes as the user wants them; -1 leaves them to the system, which tunes them as it goes."""

    send_buffer_bytes: int = -1
    """`socket.send.buffer.bytes`"""
    receive_buffer_bytes: int = -1
    """`socket.receive.buffer.bytes`"""

    def prepare_listener(self, listener: socket.socket) -> None:
        """Before it listens: accepted sockets inherit the receive buffer, and with it the window they announce."""
        listener.setblocking(False)
        # A restarted broker must not wait for connections of its former self; another's port stays its own.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.receive_buffer_bytes >= 0:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)

    def prepare_connection(self, accepted: socket.socket, peer_host: str) -> None:
        """After it was accepted. Raises `OSError` where the peer is gone already."""
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        is_paced = is_loopback(peer_host) and not _stop_pacing(accepted)
        if self.send_buffer_bytes >= 0:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        elif is_paced:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PACED_SEND_BUFFER_BYTES)


def bound_socket(host: str, port: int, options: SocketOptions) -> socket.socket:
    """A socket that has this address, and does not listen yet. An empty host is every address of this machine, of IPv6
    and IPv4. Raises `OSError`."""
    if host:
        # As bytes, it is not looked at for characters that no address has: a start need not import their tables.
        name = host.encode() if host.isascii() else host
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
    elif socket.has_dualstack_ipv6():
        family, address = socket.AF_INET6, ("::", port)
    else:
        family, address = socket.AF_INET, ("", port)
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        options.prepare_listener(bound)
        if family == socket.AF_INET6:
            # Every address includes those of IPv4; one that was named is only itself.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"


def plain_address(host: str) -> str:
    """An IPv4 address as such, also where it came in on an IPv6 socket; an IPv6 address without its zone."""
    if host.startswith("::ffff:") and "." in host:
        return host[7:]
    return host.partition("%")[0]


def _stop_pacing(accepted: socket.socket) -> bool:
    """Under a pacing control (bbr) large answers over loopback take twice as long, and nothing there needs pacing.
    Return False where there is such a control and it cannot be changed."""
    if _TCP_CONGESTION is None:
        return True
    current = accepted.getsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, 16).rstrip(b"\0")
    if current in _UNPACED:
        return True
    for name in _UNPACED:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, name)
        except OSError:
            # Not there, or not allowed to us.
            continue
        return True
    return current != b"bbr"
