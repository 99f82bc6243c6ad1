"""Metrics of a member: what it has with controllers that are other nodes. Other nodes have none of these series."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from broker.metrics.series import Family, Reading, Samples, counter, gauge, one, read
from broker.metrics.sources import MetricSources

if TYPE_CHECKING:
    from broker.membership.cluster_membership import ClusterMembership

HEARTBEAT_AGE: Final = gauge(
    "ottla_member_heartbeat_age_ms", "Milliseconds since the controllers have last answered a heartbeat"
)

_READINGS: Final = (
    Reading(
        gauge("ottla_member_fenced", "1 while the controllers let this broker lead nothing"),
        lambda it: it.member.is_fenced,
    ),
    Reading(
        gauge("ottla_member_controllers_reachable", "1 while a leader of the controllers answers"),
        lambda it: it.quorum.known_leader is not None,
    ),
    Reading(gauge("ottla_member_broker_epoch", "Epoch of the registration; -1 without"), lambda it: it.broker_epoch),
    Reading(
        counter("ottla_member_registrations_total", "Registrations that the controllers have accepted"),
        lambda it: it.member.stats.registrations,
    ),
    Reading(counter("ottla_member_heartbeats_total", "Heartbeats sent"), lambda it: it.member.stats.heartbeats),
    Reading(
        counter("ottla_member_heartbeats_failed_total", "Heartbeats without an answer, or answered with an error"),
        lambda it: it.member.stats.heartbeats_failed,
    ),
    Reading(
        counter("ottla_member_forwarding_failed_total", "Requests of clients that no controller has carried out"),
        lambda it: it.forwarder.failures,
    ),
    Reading(
        gauge(
            "kafka_server_forwardingmanager_queuelength",
            "Requests of clients that the controllers have not answered yet",
            bean="kafka.server:type=ForwardingManager",
        ),
        lambda it: it.forwarder.waiting,
    ),
    Reading(
        gauge(
            "kafka_server_assignmentsmanager_queuedreplicatodirassignments",
            "Replicas whose directory the controllers are still to be told",
            bean="kafka.server:type=AssignmentsManager,name=QueuedReplicaToDirAssignments",
        ),
        lambda it: it.directories.waiting,
    ),
)


class Membership:
    """Reads the `ClusterMembership`."""

    families: tuple[Family, ...] = (HEARTBEAT_AGE, *[reading.family for reading in _READINGS])

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Samples]:
        membership: ClusterMembership | None = self._sources.membership
        if membership is None:
            return
        yield one(HEARTBEAT_AGE, self._sources.clock.monotonic_ms() - membership.member.answered_ms)
        yield from read(_READINGS, membership)
