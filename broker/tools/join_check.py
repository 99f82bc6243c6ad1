"""Whether a node can join a cluster of controllers elsewhere: one rule after the other, on what both sides say.

Each rule yields verdicts: `ok`, `warning`, or `fault` for what keeps the node from joining, or from being of use there.
"""

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from broker.membership.features import UnsupportedFeatures, check_features
from broker.metadata.registration import SUPPORTED_FEATURES
from broker.peers.endpoint import PeerEndpoint
from broker.tools.cluster_survey import ClusterSurvey
from config.listeners import Listener
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.broker_lifecycle import BrokerHeartbeatRequest, BrokerRegistrationRequest
from protocol.messages.envelope import EnvelopeRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.records.cluster_metadata import RegisterBrokerRecord
from protocol.schema import describe
from storage.checkpoints import MetaProperties

OK: Final = "ok"
WARNING: Final = "warning"
FAULT: Final = "fault"

CLOCK_TOLERANCE_MS: Final = 1_000
"""Clocks that a time service sets agree much better than that."""

_NEVER_LOWERED: Final = ("metadata.version", "kraft.version")


class Verdict(NamedTuple):
    """What one rule has found."""

    kind: str
    about: str
    """The subject of the rule, a word or two."""
    found: str
    """A sentence."""
    remedy: str = ""
    """A command, a setting, or a sentence; empty where nothing has to be done."""

    def __str__(self) -> str:
        line = f"{self.kind:<8} {self.about:<11} {self.found}"
        return f"{line}\n{'':<20} to do: {self.remedy}" if self.remedy else line


class JoiningNode(NamedTuple):
    """The node that is to join, by its settings and its data directories."""

    node_id: int
    advertised: tuple[Listener, ...]
    inter_broker_listener: str
    directories: Mapping[str, MetaProperties | None]
    """The `meta.properties` by the path of the data directory; None for a new directory."""

    @property
    def directory_ids(self) -> frozenset[bytes]:
        """The ids of the directories that have an id."""
        return frozenset(
            properties.directory_id
            for properties in self.directories.values()
            if properties is not None and properties.directory_id is not None
        )


def check_join(node: JoiningNode, survey: ClusterSurvey) -> Iterator[Verdict]:
    """All verdicts, those on which others rest first. At least one address must have answered."""
    for rule in _RULES:
        yield from rule(node, survey)


def _controllers(node: JoiningNode, survey: ClusterSurvey) -> Iterator[Verdict]:
    for one in survey.asked:
        if one.problem:
            yield Verdict(
                WARNING, "controllers", one.problem,
                "each of controller.quorum.bootstrap.servers, and each controller, must be reachable from this node",
            )  # fmt: skip
        else:
            yield Verdict(OK, "controllers", f"{one.endpoint} answers")
    if survey.leader is None:
        yield Verdict(FAULT, "leader", "the controllers have no leader", "start the majority of them")
    elif survey.answers is None:
        for problem in survey.problems:
            yield Verdict(FAULT, "leader", problem, "the leader must be reachable from this node")
    else:
        yield Verdict(OK, "leader", f"{survey.leader} leads, in epoch {survey.answers.epoch}")


def _cluster(node: JoiningNode, survey: ClusterSurvey) -> Iterator[Verdict]:
    cluster_id = survey.cluster_id
    if len({one.cluster_id for one in survey.answered}) > 1:
        named = ", ".join(f"{one.endpoint} of {one.cluster_id}" for one in survey.answered)
        yield Verdict(FAULT, "cluster", f"the controllers are of several clusters: {named}", "name those of one")
    for path, properties in node.directories.items():
        if properties is None:
            continue
        if properties.node_id != node.node_id:
            yield Verdict(
                FAULT, "directory", f"{path} belongs to node {properties.node_id}, and node.id is {node.node_id}",
                f"node.id={properties.node_id}",
            )  # fmt: skip
        if properties.cluster_id != cluster_id:
            yield Verdict(
                FAULT, "cluster",
                f"{path} belongs to cluster {properties.cluster_id}, and the controllers to {cluster_id}",
                "join with new data directories; or have controllers take over this node's own metadata with "
                "`ottla cluster handover`",
            )  # fmt: skip
        else:
            yield Verdict(OK, "cluster", f"{path} belongs to cluster {cluster_id}, as the controllers do")
    if not any(node.directories.values()):
        yield Verdict(OK, "cluster", f"all data directories are new: they will belong to cluster {cluster_id}")


def _versions(node: JoiningNode, survey: ClusterSurvey) -> Iterator[Verdict]:
    if survey.answers is None:
        return
    for request in (
        ApiVersionsRequest, FetchRequest, FetchSnapshotRequest, BrokerRegistrationRequest, BrokerHeartbeatRequest,
        AlterPartitionRequest, EnvelopeRequest,
    ):  # fmt: skip
        info = describe(request)
        first, last = info.versions
        theirs = survey.answers.apis.get(info.key)
        if theirs is None or min(theirs[1], last) < max(theirs[0], first):
            known = "no version" if theirs is None else f"versions {theirs[0]} to {theirs[1]}"
            yield Verdict(
                FAULT, "versions",
                f"{survey.leader} knows {known} of {info.name.removesuffix('Request')}, this broker {first} to {last}",
                "controllers of another version of Kafka: 4.3.1 and 4.4.0 are tried",
            )  # fmt: skip


def _features(node: JoiningNode, survey: ClusterSurvey) -> Iterator[Verdict]:
    if survey.answers is None:
        return
    finalized = survey.answers.finalized_features
    levels = ", ".join(f"{name} {level}" for name, level in sorted(finalized.items()) if level)
    faults = False
    lowered: list[str] = []
    for name, level in sorted(finalized.items()):
        try:
            check_features({name: level})
        except UnsupportedFeatures:
            faults = True
            low, high = SUPPORTED_FEATURES.get(name, (0, 0))
            known = f"this broker supports {low} to {high}" if high else "which this broker does not know"
            found = f"the cluster has finalised {name} at {level}, {known}"
            if level > high and name not in _NEVER_LOWERED:
                lowered.append(f"--feature {name}={high}")
                yield Verdict(FAULT, "features", found)
            elif level > high:
                yield Verdict(FAULT, "features", found, "Kafka does not lower this level: it takes a newer Ottla")
            else:
                yield Verdict(FAULT, "features", found, f"{_kafka_features(survey)} upgrade --feature {name}={low}")
    if lowered:
        yield Verdict(
            FAULT, "features", "levels that this broker does not have can be lowered",
            f"{_kafka_features(survey)} downgrade {' '.join(lowered)}",
        )  # fmt: skip
    if not faults:
        yield Verdict(OK, "features", f"this broker supports all that is finalised: {levels}")


def _kafka_features(survey: ClusterSurvey) -> str:
    return f"kafka-features.sh --bootstrap-controller {_address(survey.leader)}"


def _node_id(node: JoiningNode, survey: ClusterSurvey) -> Iterator[Verdict]:
    node_id = node.node_id
    voters = frozenset() if survey.answers is None else survey.answers.voters
    if node_id in survey.controllers or node_id in voters:
        yield Verdict(
            FAULT, "node.id", f"{node_id} is a controller's id: a broker of the same id cannot fetch from it",
            "another node.id, with new data directories",
        )  # fmt: skip
    if survey.image is None:
        for problem in survey.problems if survey.answers is not None else ():
            yield Verdict(WARNING, "node.id", f"whether {node_id} is free is not known: {problem}")
        return
    brokers = survey.image.cluster.brokers
    for broker_id, broker in brokers.items():
        if broker_id != node_id and not node.directory_ids.isdisjoint(broker.log_dirs):
            yield Verdict(
                FAULT, "directory", f"broker {broker_id} is registered with a data directory of this node",
                f"node.id={broker_id}, or a directory.id of its own where the directory is a copy",
            )  # fmt: skip
    registered = brokers.get(node_id)
    if registered is None:
        yield Verdict(OK, "node.id", f"{node_id} is free")
    else:
        yield from _registered(node, survey, registered)


def _registered(node: JoiningNode, survey: ClusterSurvey, registered: RegisterBrokerRecord) -> Iterator[Verdict]:
    node_id = node.node_id
    if node.directory_ids.isdisjoint(registered.log_dirs):
        at = ", ".join(f"{one.host}:{one.port}" for one in registered.end_points)
        yield Verdict(
            FAULT, "node.id", f"{node_id} is registered by a broker at {at} with other data directories",
            f"another node.id; or, if that broker is gone for good, "
            f"kafka-cluster.sh unregister --bootstrap-controller {_address(survey.leader)} --id {node_id}",
        )  # fmt: skip
    elif registered.fenced:
        yield Verdict(OK, "node.id", f"{node_id} is registered by this data directory")
    else:
        yield Verdict(
            WARNING, "node.id",
            f"{node_id} is registered by this data directory and not fenced: that broker runs, or has stopped just now",
            "stop it first; a new run is registered once the session of the last is over",
        )  # fmt: skip


def _listeners(node: JoiningNode, survey: ClusterSurvey) -> Iterator[Verdict]:
    elsewhere = next((one for one in survey.controllers.values() if not _is_loopback(one.host)), None)
    taken = {(one.host, one.port): f"controller {one.node_id}" for one in survey.controllers.values()}
    others = {} if survey.image is None else survey.image.cluster.brokers
    for broker_id, broker in others.items():
        if broker_id != node.node_id:
            taken |= {(one.host, one.port): f"broker {broker_id}" for one in broker.end_points}
    for listener in node.advertised:
        if elsewhere is not None and _is_loopback(listener.host):
            yield Verdict(
                FAULT, "listeners",
                f"{listener} is advertised, which only this machine reaches, and {elsewhere} is elsewhere",
                f"advertised.listeners={listener.name}://<address of this machine>:{listener.port}",
            )  # fmt: skip
        elif (owner := taken.get((listener.host, listener.port))) is not None:
            yield Verdict(FAULT, "ports", f"{listener} is advertised, which is the address of {owner}", "another port")
        elif listener.port == 0:
            yield Verdict(
                WARNING, "ports", f"{listener} has port 0: it is another one after each start",
                f"listeners={listener._replace(port=9092)}",
            )  # fmt: skip
        else:
            yield Verdict(OK, "listeners", f"{listener} is advertised")
    yield from _listener_between_brokers(node, others)


def _listener_between_brokers(node: JoiningNode, others: Mapping[int, RegisterBrokerRecord]) -> Iterator[Verdict]:
    """Brokers find each other on the listener of one name."""
    name = node.inter_broker_listener
    without = [
        str(broker_id)
        for broker_id, broker in others.items()
        if broker_id != node.node_id and all(one.name != name for one in broker.end_points)
    ]
    if without:
        yield Verdict(
            FAULT, "listeners",
            f"brokers talk to each other on the listener {name}, which brokers {', '.join(without)} do not have",
            "the same inter.broker.listener.name at all brokers",
        )  # fmt: skip


def _clock(node: JoiningNode, survey: ClusterSurvey) -> Iterator[Verdict]:
    if survey.answers is None or survey.answers.clock_ahead_ms is None:
        return
    ahead_ms, doubt_ms = survey.answers.clock_ahead_ms, survey.answers.clock_doubt_ms
    if abs(ahead_ms) - doubt_ms > CLOCK_TOLERANCE_MS:
        yield Verdict(
            WARNING, "clock",
            f"the clock of {survey.leader} is {abs(ahead_ms)} ms {'ahead' if ahead_ms > 0 else 'behind'}",
            "let a time service set the clocks of all nodes",
        )  # fmt: skip
    else:
        yield Verdict(OK, "clock", f"the clock of {survey.leader} agrees to {abs(ahead_ms) + doubt_ms} ms")


_RULES: Final[tuple[Callable[[JoiningNode, ClusterSurvey], Iterator[Verdict]], ...]] = (
    _controllers,
    _cluster,
    _versions,
    _features,
    _node_id,
    _listeners,
    _clock,
)


def _address(endpoint: PeerEndpoint | None) -> str:
    if endpoint is None:
        return "HOST:PORT"
    return f"[{endpoint.host}]:{endpoint.port}" if ":" in endpoint.host else f"{endpoint.host}:{endpoint.port}"


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
