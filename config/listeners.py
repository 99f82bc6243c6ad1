"""Listeners: the addresses where the broker accepts connections, and those that Metadata responses advertise.

listeners=INTERNAL://:9092,EXTERNAL://[::1]:9094      name://host:port; an empty host is every interface
listener.security.protocol.map=INTERNAL:PLAINTEXT,…   the security protocol of each listener name
advertised.listeners=EXTERNAL://broker.example:9094   the addresses in Metadata; without it, the listeners
controller.listener.names=CONTROLLER                  listeners of the KRaft controller: kept, never opened
"""

import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from config.errors import InvalidConfig, SettingsError

_LISTENER: Final = r"([^:/]+)://(?:\[([0-9a-zA-Z:.%_-]*)\]|([0-9a-zA-Z.%_-]*)):0*([0-9]{1,5})"
_SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_SECURITY_PROTOCOL_MAP: Final = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
HIGHEST_PORT: Final = 65535


class Listener(NamedTuple):
    """One listener. An empty ``host`` is every interface; ``port`` 0 is one that the system chooses."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"
    max_connections: int | None = None
    """The value of ``listener.name.<name>.max.connections``; None if not set."""
    max_connection_creation_rate: int | None = None
    """Connections a second, from ``listener.name.<name>.max.connection.creation.rate``; None if not set."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def has_sasl(self) -> bool:
        """Whether clients of the listener authenticate by SASL."""
        return self.security_protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        """Whether the connections of the listener are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def binds_every_interface(self) -> bool:
        """Whether the listener's host means every interface, so that no client can connect to it."""
        return is_every_interface(self.host)


def is_every_interface(host: str) -> bool:
    """Whether a listener with this host accepts on all addresses of this machine, of IPv4 and IPv6: the host is empty,
    or 0.0.0.0 or [::] in any spelling."""
    return not host.removeprefix("::ffff:").strip("0:.")


def parse_listeners(key: str, texts: Sequence[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """Read a list of listeners.

    Args:
        key: The name of the setting, for the error.
        texts: ``name://host:port`` each.
        protocols: The security protocol of each name; names are upper case.

    Raises:
        InvalidConfig: A listener cannot be read, has no protocol, or its name or port appears twice.
    """
    listeners = tuple(_parse_listener(key, text, protocols) for text in texts)
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfig(
                key, ",".join(texts), f"each listener once, but {name} stands there {names.count(name)} times"
            )
    return listeners


def _parse_listener(key: str, text: str, protocols: Mapping[str, str]) -> Listener:
    parts = re.fullmatch(_LISTENER, text)
    if parts is None or int(parts[4]) > HIGHEST_PORT:
        raise InvalidConfig(
            key, text, f"name://host:port with a port from 0 to {HIGHEST_PORT}, such as PLAINTEXT://:9092"
        )
    name = parts[1].strip().upper()
    if name not in protocols:
        raise InvalidConfig(
            key, text, f"a listener named in listener.security.protocol.map, which knows {', '.join(sorted(protocols))}"
        )
    return Listener(name=name, host=parts[2] or parts[3] or "", port=int(parts[4]), security_protocol=protocols[name])


def parse_protocol_map(text: str, controller_names: Iterable[str] = ()) -> dict[str, str]:
    """The security protocol of each listener name.

    A controller listener that the default map does not know speaks PLAINTEXT, as in Kafka.

    Raises:
        InvalidConfig: An entry is not ``name:protocol``, or there is no such protocol.
    """
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        name, separator, protocol = (part.strip() for part in entry.partition(":"))
        if not separator or not name or protocol.upper() not in _SECURITY_PROTOCOLS:
            raise InvalidConfig(key, entry, f"name:protocol with one of the protocols {', '.join(_SECURITY_PROTOCOLS)}")
        if name.upper() in protocols:
            raise InvalidConfig(key, text, f"each listener once, but {name.upper()} stands there twice")
        protocols[name.upper()] = protocol.upper()
    if text == DEFAULT_SECURITY_PROTOCOL_MAP:
        for name in controller_names:
            protocols.setdefault(name, "PLAINTEXT")
    return protocols


def machine_name() -> str:
    """The name of this machine; ``localhost`` where it has none, or none that can be looked up."""
    try:
        return socket.getfqdn() or "localhost"
    except (OSError, UnicodeError):
        return "localhost"


def check_ports_differ(listeners: Sequence[Listener]) -> None:
    """Refuse two listeners on one port, unless one is an IPv4 and the other an IPv6 address. As in Java, what is every
    interface is both.

    Raises:
        SettingsError: Two listeners want the same port.
    """
    taken: dict[int, Listener] = {}
    for listener in listeners:
        other = taken.setdefault(listener.port, listener)
        if other is listener or listener.port == 0:
            continue
        is_both = other.binds_every_interface or listener.binds_every_interface
        if is_both or (":" in other.host) == (":" in listener.host):
            raise SettingsError(
                f"listeners has both {other} and {listener}, expected a port of its own for each "
                "(only an IPv4 and an IPv6 address may share one)"
            )


def advertise(
    listeners: Sequence[Listener], advertised: Sequence[Listener], host_name: Callable[[], str] = machine_name
) -> tuple[Listener, ...]:
    """The advertised listener for each listener that is opened.

    Args:
        listeners: The listeners that are opened.
        advertised: The value of ``advertised.listeners`` without controller listeners; empty if not set.
        host_name: This machine's name, advertised where a listener binds every interface and nothing is advertised.

    Raises:
        SettingsError: A listener is advertised that is not opened, or with an address that no client can connect to.
    """
    opened = {listener.name: listener for listener in listeners}
    for listener in advertised:
        if listener.name not in opened:
            raise SettingsError(
                f"advertised.listeners has {listener}, expected a name that listeners has: {', '.join(sorted(opened))}"
            )
        if listener.host and listener.binds_every_interface:
            raise SettingsError(
                f"advertised.listeners has {listener}, expected an address that clients can connect to: "
                f"{listener.host} only means every interface of this machine"
            )
    found = advertised or tuple(listeners)
    return tuple(one._replace(host=host_name()) if one.binds_every_interface else one for one in found)


def with_bound_ports(listeners: Iterable[Listener], bound_ports: Mapping[str, int]) -> tuple[Listener, ...]:
    """``listeners`` with the port that the system gave in place of each 0; ``bound_ports`` is by listener name."""
    return tuple(
        listener if listener.port else listener._replace(port=bound_ports[listener.name]) for listener in listeners
    )
