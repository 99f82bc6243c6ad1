"""Addresses of hosts: which names have one, asked of the system's resolver."""

import socket
from collections.abc import Collection
from ipaddress import ip_address

from broker.network.socket_options import plain_address


def address_of(host: str) -> str | None:
    """An address as connections have it; None where ``host`` is a name. The resolver is not asked."""
    try:
        return plain_address(str(ip_address(host.removeprefix("[").removesuffix("]"))))
    except ValueError:
        return None


def resolved(host: str) -> str | None:
    """The first address of a host name or address, IPv4 before IPv6, as in Kafka; None where it has none."""
    try:
        found = socket.getaddrinfo(host.removeprefix("[").removesuffix("]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    first = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return plain_address(str(first[4][0]))


def unknown_hosts(hosts: Collection[str]) -> set[str]:
    """Those of the hosts that have no address."""
    return {host for host in hosts if resolved(host) is None}
