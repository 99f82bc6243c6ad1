"""The roles of a node, and the addresses of the controllers whose cluster it is a member of.

process.roles=broker,controller                      a single node, which needs nothing else
process.roles=broker                                 a member: its controllers are other nodes
controller.quorum.bootstrap.servers=host:port,…      where they are asked for
controller.quorum.voters=id@host:port,…              the same, in the words of a fixed quorum
"""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from config.errors import InvalidConfig, SettingsError
from config.listeners import HIGHEST_PORT

if TYPE_CHECKING:
    from config.broker_settings import BrokerSettings

BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
VOTERS: Final = "controller.quorum.voters"
_ADDRESS: Final = r"(?:\[([0-9a-zA-Z:.%_-]+)\]|([0-9a-zA-Z.%_-]+)):0*([0-9]{1,5})"


class ControllerAddress(NamedTuple):
    """Where a controller may be asked for the leader of the controllers."""

    node_id: int | None
    """None where the setting has no id."""
    host: str
    port: int


def check_roles(given: Collection[str], roles: Collection[str]) -> None:
    """Refuse roles that this process cannot have.

    Args:
        given: the names of the settings that are given.
        roles: the value of ``process.roles``.

    Raises:
        SettingsError: The process is to be no broker, or a member of a cluster without an address of a controller.
    """
    if "broker" not in roles:
        raise SettingsError(
            f"process.roles is '{','.join(roles)}', expected broker among them: this process is always a broker"
        )
    if "controller" not in roles and BOOTSTRAP_SERVERS not in given and VOTERS not in given:
        raise SettingsError(
            f"process.roles is 'broker', expected {BOOTSTRAP_SERVERS} with the addresses of the controllers"
        )


def controller_addresses(settings: "BrokerSettings") -> tuple[ControllerAddress, ...]:
    """The addresses of the controllers of a member, those of the bootstrap servers first.

    Raises:
        InvalidConfig: An address cannot be read.
    """
    servers = [read_address(BOOTSTRAP_SERVERS, text, text) for text in settings.controller_quorum_bootstrap_servers]
    return (*servers, *map(_voter, settings.controller_quorum_voters))


def _voter(text: str) -> ControllerAddress:
    node_id, at, address = text.partition("@")
    if not at or re.fullmatch(r"[0-9]{1,10}", node_id) is None:
        raise InvalidConfig(VOTERS, text, "id@host:port, such as 100@controller.example:9093")
    return read_address(VOTERS, text, address)._replace(node_id=int(node_id))


def read_address(key: str, text: str, address: str) -> ControllerAddress:
    """Read ``host:port``, which is ``text`` or stands in it. Raises InvalidConfig, which names ``key`` and ``text``."""
    parts = re.fullmatch(_ADDRESS, address)
    if parts is None or not 0 < int(parts[3]) <= HIGHEST_PORT:
        raise InvalidConfig(key, text, f"host:port with a port from 1 to {HIGHEST_PORT}, such as controller:9093")
    return ControllerAddress(None, parts[1] or parts[2], int(parts[3]))
