"""Addresses of listeners that are not Kafka's: that of the metrics endpoint, and that of the control listener.

ottla.prometheus.listener=127.0.0.1:9404      host:port; an empty host is every interface; empty: there is no endpoint
ottla.control.listener=127.0.0.1:0            the same, on loopback, or in a container whose ports are published; only
                                              for a broker that is under a test (docs/testing.md)
"""

from typing import Final, NamedTuple

from config.errors import InvalidConfig
from config.listeners import HIGHEST_PORT

METRICS_LISTENER: Final = "ottla.prometheus.listener"
CONTROL_LISTENER: Final = "ottla.control.listener"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_MOST_DIGITS: Final = len(str(HIGHEST_PORT))


class ListenAddress(NamedTuple):
    """An address of this machine. An empty ``host`` is every interface; ``port`` 0 is one that the system chooses."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_metrics_listener(text: str) -> ListenAddress | None:
    """Read ``host:port``; None for an empty text: there is no endpoint then. Raises `InvalidConfig`."""
    return _parse(METRICS_LISTENER, text, "127.0.0.1:9404")


def parse_control_listener(text: str) -> ListenAddress | None:
    """Read ``host:port``; None for an empty text. Raises `InvalidConfig`."""
    return _parse(CONTROL_LISTENER, text, "127.0.0.1:0")


def require_loopback(address: ListenAddress | None) -> None:
    """Raises `InvalidConfig` if the control listener would be reached from other machines."""
    if address is not None and address.host not in _LOOPBACK:
        raise InvalidConfig(CONTROL_LISTENER, str(address), f"an address of loopback: {', '.join(_LOOPBACK)}")


def _parse(key: str, text: str, example: str) -> ListenAddress | None:
    if not text:
        return None
    host, separator, port = text.rpartition(":")
    is_ipv6 = host.startswith("[") and host.endswith("]")
    bare_host = host[1:-1] if is_ipv6 else host
    if (
        not separator
        or not (port.isascii() and port.isdigit())
        or len(port) > _MOST_DIGITS
        or int(port) > HIGHEST_PORT
        or (":" in bare_host) != is_ipv6
        or "/" in host
    ):
        raise InvalidConfig(key, text, f"host:port with a port from 0 to {HIGHEST_PORT}, such as {example}, or nothing")
    return ListenAddress(bare_host, int(port))
