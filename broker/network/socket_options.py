"""The options of listening and connected sockets, and which systems have them."""

import errno
import socket
from typing import Any, Final, NamedTuple

from config.listeners import is_every_interface

_TCP_CONGESTION: Final[int | None] = getattr(socket, "TCP_CONGESTION", None)

_UNPACED: Final = (b"cubic", b"reno")
"""Congestion controls that do not pace: as fast as loopback is."""

_PACED: Final = b"bbr"

_NO_SUCH_ADDRESS: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""The errors of an address that this machine has not: `localhost` is ::1 first, also where IPv6 is switched off."""

PACED_SEND_BUFFER_BYTES: Final = 262_144
"""Where pacing cannot be helped, the size that large answers are fastest with (docs/decisions/sockets.md)."""


class SocketOptions(NamedTuple):
    """Buffer sizes in bytes as the user wants them; -1 leaves them to the system, which tunes them as it goes."""

    send_buffer_bytes: int = -1
    """`socket.send.buffer.bytes`"""
    receive_buffer_bytes: int = -1
    """`socket.receive.buffer.bytes`"""

    def prepare_listener(self, listener: socket.socket) -> None:
        """Set up a socket before it listens: accepted sockets inherit its receive buffer, and so the window they
        announce."""
        listener.setblocking(False)
        # A restarted broker must not wait for connections of its former self; another's port stays its own.
        _set(listener, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.receive_buffer_bytes >= 0:
            _set(listener, socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)

    def prepare_connection(self, accepted: socket.socket, peer_host: str, system_control: bytes | None = None) -> None:
        """Set up a socket that was accepted. ``system_control``: what `leave_unpaced` returned for its listener.

        All options are wishes: a sandbox that has not all of them serves all the same. A connection that is lost
        already says so when it is read.
        """
        accepted.setblocking(False)
        _set(accepted, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _set(accepted, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        is_local = is_loopback(peer_host)
        if system_control is not None and not is_local:
            _set_control(accepted, system_control)
        if self.send_buffer_bytes >= 0:
            _set(accepted, socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        elif is_local and _control_of(accepted) == _PACED:
            _set(accepted, socket.SOL_SOCKET, socket.SO_SNDBUF, PACED_SEND_BUFFER_BYTES)


def leave_unpaced(listener: socket.socket) -> bytes | None:
    """Choose a congestion control for a listener's connections that does not pace, where the system's own does. Return
    the system's own if another stands in its place now: peers elsewhere get it back.

    Under a pacing control (bbr) large answers over loopback take twice as long, and nothing there needs pacing. It has
    to be the listener's, before it listens: a connection that has once had such a control is paced by Linux for the
    rest of its life, whatever it is given later (docs/decisions/sockets.md).
    """
    current = _control_of(listener)
    if current is None or current in _UNPACED:
        return None
    # A control may not be there, or not be allowed to us.
    return current if any(_set_control(listener, name) for name in _UNPACED) else None


def bound_socket(host: str, port: int, options: SocketOptions) -> socket.socket:
    """A socket that has this address, and does not listen yet. As in Java, 0.0.0.0 and [::] are every address of this
    machine, of IPv6 and IPv4, as an empty host is. A name gets the first of its addresses that this machine has, IPv4
    before IPv6. Raises `OSError`."""
    if not is_every_interface(host):
        # As bytes, the name is not looked at for characters that no address has: a start need not import their tables.
        name = host.encode() if host.isascii() else host
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        found.sort(key=lambda entry: entry[0] != socket.AF_INET)
        for family, _, _, _, address in found:
            try:
                return _bound(family, address, options)
            except OSError as error:
                if error.errno not in _NO_SUCH_ADDRESS or address == found[-1][-1]:
                    raise
    if socket.has_dualstack_ipv6():
        return _bound(socket.AF_INET6, ("::", port), options)
    return _bound(socket.AF_INET, ("", port), options)


def _bound(family: int, address: Any, options: SocketOptions) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        options.prepare_listener(bound)
        if family == socket.AF_INET6:
            # Every address includes those of IPv4, and ::ffff:10.0.0.1 is one of them.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
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


def _control_of(one: socket.socket) -> bytes | None:
    """The congestion control of a socket; None where the system has no such setting."""
    if _TCP_CONGESTION is None:
        return None
    try:
        return one.getsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, 16).rstrip(b"\0")
    except OSError:
        return None


def _set_control(one: socket.socket, name: bytes) -> bool:
    """Give a socket a congestion control; whether it has that now."""
    assert _TCP_CONGESTION is not None
    return _set(one, socket.IPPROTO_TCP, _TCP_CONGESTION, name)


def _set(one: socket.socket, level: int, option: int, value: int | bytes) -> bool:
    """Set an option of a socket; whether the system has done so."""
    try:
        one.setsockopt(level, option, value)
    except OSError:
        return False
    return True
