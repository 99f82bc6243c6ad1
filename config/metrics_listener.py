"""The address of the metrics endpoint.

ottla.prometheus.listener=127.0.0.1:9404      host:port; an empty host is every interface; empty: there is no endpoint
"""

from typing import Final, NamedTuple

from config.errors import InvalidConfig
from config.listeners import HIGHEST_PORT

METRICS_LISTENER: Final = "ottla.prometheus.listener"
_MOST_DIGITS: Final = len(str(HIGHEST_PORT))


class MetricsListener(NamedTuple):
    """An address of this machine. An empty ``host`` is every interface; ``port`` 0 is one that the system chooses."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_metrics_listener(text: str) -> MetricsListener | None:
    """Read ``host:port``; None for an empty text: there is no endpoint then. Raises `InvalidConfig`."""
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
        raise InvalidConfig(
            METRICS_LISTENER,
            text,
            f"host:port with a port from 0 to {HIGHEST_PORT}, such as 127.0.0.1:9404, or nothing",
        )
    return MetricsListener(bare_host, int(port))
