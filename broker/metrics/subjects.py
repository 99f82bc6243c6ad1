"""The one list of what is told: each subject has a file of its own, and a line here."""

from typing import Final

from broker.metrics import partitions, topics
from broker.metrics.controller import Controller
from broker.metrics.loading import Loading
from broker.metrics.logs import Logs
from broker.metrics.metadata import Metadata
from broker.metrics.network import Network
from broker.metrics.pages import Pages
from broker.metrics.replicas import Replicas
from broker.metrics.requests import Requests
from broker.metrics.rooms import Rooms
from broker.metrics.series import Family
from broker.metrics.server import Server
from broker.metrics.survey import Surveyor

FAMILIES: Final[tuple[Family, ...]] = (
    *Server.families,
    *Loading.families,
    *Requests.families,
    *Network.families,
    *Replicas.families,
    *topics.FAMILIES,
    *Logs.families,
    *Controller.families,
    *Metadata.families,
    *partitions.FAMILIES,
)
"""All that a page may have, but for what prometheus-client itself tells of the process and of Python."""


def make_pages(rooms: Rooms) -> Pages:
    """Everything that can be told of ``rooms``."""
    surveyor = Surveyor(rooms)
    return Pages(
        surveyor.look,
        sources=(
            Server(rooms, known=len(FAMILIES)),
            Loading(rooms),
            Requests(rooms),
            Network(rooms),
            Replicas(rooms, surveyor),
            Logs(rooms),
            Controller(rooms, surveyor),
            Metadata(rooms),
        ),
        tables=(
            *topics.tables(surveyor),
            *(partitions.tables(surveyor) if rooms.settings.ottla_prometheus_partitions else ()),
        ),
    )
