"""Which hosts an ACL is for: one address, a range of addresses (CIDR, KIP-1276), or all.

Addresses are compared by value. Kafka compares the text of an address, and writes IPv6 in full:
`0:0:0:0:0:0:0:1`. An ACL for `::1` never holds there, and holds here.
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from broker.security.acls.codes import WILDCARD

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_MOST_PARSED: Final = 4096
_IN_RANGE: Final = "/"


def is_range(host: str) -> bool:
    """Whether the host of an ACL is meant as a range of addresses."""
    return _IN_RANGE in host


@lru_cache(_MOST_PARSED)
def range_of(host: str) -> Network | None:
    """The addresses of a range, whose first address may have bits behind the prefix; None if it is malformed."""
    address, slash, prefix = host.partition(_IN_RANGE)
    if not slash or not prefix.isascii() or not prefix.isdigit():
        return None  # a mask such as 255.255.255.0 is no prefix
    try:
        return ip_network((address, int(prefix)), strict=False)
    except ValueError:
        return None


@lru_cache(_MOST_PARSED)
def address_of(host: str) -> Address | None:
    """An address without its zone; None for another text."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


class Host:
    """The address that a client comes from."""

    __slots__ = ("_address", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._address = address_of(text)

    def is_meant_by(self, host: str) -> bool:
        """Whether an ACL for ``host`` is for this client."""
        if host in (WILDCARD, self.text):
            return True
        if self._address is None:
            return False
        if not is_range(host):
            return address_of(host) == self._address
        addresses = range_of(host)
        return addresses is not None and self._address in addresses
