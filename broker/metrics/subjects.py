"""The list of all subjects of metrics: each subject has a module, and a line here."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from broker.metrics import archive, fetchers, lag, partitions, share_partitions, topics
from broker.metrics.authentication import Authentication
from broker.metrics.authorization import Authorization
from broker.metrics.cleaner import Cleaner
from broker.metrics.controller import Controller
from broker.metrics.fetchers import Fetchers
from broker.metrics.group_survey import GroupSurveyor
from broker.metrics.groups import Groups
from broker.metrics.loading import Loading
from broker.metrics.logs import Logs
from broker.metrics.membership import Membership
from broker.metrics.metadata import Metadata
from broker.metrics.network import Network
from broker.metrics.pages import Pages
from broker.metrics.peers import Peers
from broker.metrics.quotas import Quotas
from broker.metrics.replicas import Replicas
from broker.metrics.requests import Requests
from broker.metrics.series import Family
from broker.metrics.server import Server
from broker.metrics.share_delivery import ShareDeliveries
from broker.metrics.share_lag import ShareLag
from broker.metrics.share_states import ShareStates
from broker.metrics.share_survey import ShareSurveyor
from broker.metrics.sources import MetricSources
from broker.metrics.survey import Surveyor
from broker.metrics.tls import Tls
from broker.metrics.transactions import Transactions

FAMILIES_OF: Final[Mapping[str, Sequence[Family]]] = {
    "The process and the node": Server.families,
    "The start": Loading.families,
    "Requests": Requests.families,
    "The network": Network.families,
    "Clients that authenticate": Authentication.families,
    "What clients may do": Authorization.families,
    "Certificates": Tls.families,
    "Clients and replicas that have a quota": Quotas.families,
    "Replicas, requests that wait, fetch sessions": Replicas.families,
    "Followers: replicas that this node fetches from other brokers": (*Fetchers.families, *fetchers.LAG_FAMILIES),
    "Topics": topics.FAMILIES,
    "Partitions": partitions.FAMILIES,
    "The group coordinator": Groups.families,
    "Consumer groups and their lag": lag.FAMILIES,
    "The transaction coordinator": Transactions.families,
    "The share coordinator": ShareStates.families,
    "Share groups": (*ShareDeliveries.families, *share_partitions.FAMILIES),
    "Share groups: members and lag": ShareLag.families,
    "Archived before deleted": archive.FAMILIES,
    "Data directories": Logs.families,
    "The log cleaner": Cleaner.families,
    "The controller": Controller.families,
    "The metadata log": Metadata.families,
    "A member of a cluster of several nodes": Membership.families,
    "Connections to other nodes": Peers.families,
}
"""All families of a page, except those of prometheus-client itself about the process and Python."""

FAMILIES: Final = tuple(chain.from_iterable(FAMILIES_OF.values()))


def make_pages(sources: MetricSources) -> Pages:
    """Make the pages of all metrics of ``sources``."""
    surveyor = Surveyor(sources)
    groups = GroupSurveyor(sources)
    shares = ShareSurveyor(sources)
    share_lag = ShareLag(groups, shares)
    of_partitions = (
        (
            *partitions.tables(surveyor),
            *fetchers.lag_tables(surveyor),
            *archive.tables(sources, surveyor),
            *lag.partition_tables(groups),
            *share_partitions.tables(shares),
            *share_lag.partition_tables(),
        )
        if sources.settings.ottla_prometheus_partitions
        else ()
    )
    return Pages(
        lambda: chain(surveyor.look(), groups.look(), shares.look()),
        sources=(
            Server(sources, known=len(FAMILIES)),
            Loading(sources),
            Requests(sources),
            Network(sources),
            Authentication(sources),
            Authorization(sources),
            Tls(sources),
            Quotas(sources),
            Replicas(sources, surveyor),
            Fetchers(sources),
            Groups(sources, groups),
            Transactions(sources),
            ShareStates(sources),
            ShareDeliveries(sources),
            share_lag,
            Logs(sources),
            Cleaner(sources),
            Controller(sources, surveyor),
            Metadata(sources),
            Membership(sources),
            Peers(sources),
        ),
        tables=(*topics.tables(surveyor), *lag.tables(groups), *share_lag.tables(), *of_partitions),
    )
