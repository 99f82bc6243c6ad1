"""The one list of what is told: each subject has a file of its own, and a line here."""

from collections.abc import Mapping, Sequence
from itertools import chain
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

FAMILIES_OF: Final[Mapping[str, Sequence[Family]]] = {
    "The process and the node": Server.families,
    "The start": Loading.families,
    "Requests": Requests.families,
    "The network": Network.families,
    "Replicas, requests that wait, fetch sessions": Replicas.families,
    "Topics": topics.FAMILIES,
    "Partitions": partitions.FAMILIES,
    "Data directories": Logs.families,
    "The controller": Controller.families,
    "The metadata log": Metadata.families,
}
"""All that a page may have, but for what prometheus-client itself tells of the process and of Python."""

FAMILIES: Final = tuple(chain.from_iterable(FAMILIES_OF.values()))


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
