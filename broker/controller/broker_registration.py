"""Registration of a run of a broker: every check of BrokerRegistration in Kafka's order, then the records (KIP-631).

A registration without an endpoint, or at port 0, is refused: nobody could reach the broker. Kafka's controller resigns
over a port 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.controller.broker_changes import leave, leave_uncleanly
from broker.controller.cluster_view import ClusterView
from broker.metadata.directories import is_reserved
from broker.metadata.image.features import METADATA_VERSION
from broker.metadata.image.records import Record
from broker.metadata.record_versions import DIRECTORIES_SINCE
from broker.request.faults import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    UnsupportedVersion,
)
from protocol.messages.broker_lifecycle import BrokerRegistrationRequest
from protocol.records.cluster_metadata import RegisterBrokerRecord


class Registered(NamedTuple):
    """What a registration changes."""

    broker_epoch: int
    is_new_run: bool
    """False: the same run of the broker has registered again, and keeps its epoch and its state."""
    changes: list[Record]
    """Of partitions, since the last run of the broker is over."""
    record: RegisterBrokerRecord


def plan_registration(
    view: ClusterView,
    request: BrokerRegistrationRequest,
    *,
    cluster_id: str,
    kraft_version: int,
    has_valid_session: bool,
    end_offset: int,
) -> Registered:
    """The records that register a run of a broker, after every check.

    Args:
        view: the cluster.
        request: what the broker says of itself.
        cluster_id: that of this cluster.
        kraft_version: the finalised level of kraft.version, which is not among the features of the image.
        has_valid_session: whether the registration that is there has been in contact within the session timeout.
        end_offset: the offset of the next record in the metadata log, which becomes the epoch of a new run.

    Raises:
        InconsistentClusterId: the broker belongs to another cluster.
        DuplicateBrokerRegistration: another run of the broker is there, or was until just now; or it is the
            controller's own, which does not come over the wire.
        BrokerIdNotRegistered: the broker migrates from ZooKeeper.
        InvalidRegistration: the log directories, the endpoints or the id are no good, or metadata.version is missing.
        UnsupportedVersion: the broker does not support the finalised level of a feature.
    """
    if request.cluster_id != cluster_id:
        raise InconsistentClusterId(f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}")
    if request.broker_id == view.own or (has_valid_session and _is_new_run(view, request)):
        raise DuplicateBrokerRegistration(
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session."
        )
    if request.is_migrating_zk_broker:
        raise BrokerIdNotRegistered("Controller does not support registering ZK brokers.")
    if request.broker_id < 0:
        raise InvalidRegistration(f"No broker can have the id {request.broker_id}, which is negative")
    _check_directories(view, request)
    _check_endpoints(request)
    _check_features(request, {"kraft.version": kraft_version, **view.image.features.levels})
    return register(view, request, end_offset=end_offset)


def register(view: ClusterView, request: BrokerRegistrationRequest, *, end_offset: int) -> Registered:
    """The records that register a run of a broker that has been checked, or is the controller's own."""
    broker_id = request.broker_id
    before = view.broker(broker_id)
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=end_offset,
        end_points=[
            RegisterBrokerRecord.EndPoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            RegisterBrokerRecord.Feature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        rack=request.rack,
        fenced=True,
        log_dirs=list(request.log_dirs) if view.metadata_version >= DIRECTORIES_SINCE else [],
    )
    if before is not None and not _is_new_run(view, request):
        record.broker_epoch = before.broker_epoch
        record.fenced = before.fenced
        # A run that was fenced at the end of its controlled shutdown has been restarted with the same id.
        record.in_controlled_shutdown = before.in_controlled_shutdown and not before.fenced
        return Registered(before.broker_epoch, False, [], record)
    # Without eligible leaders, the last replica in sync stays in sync whatever it has lost: there is no better replica.
    was_clean = before is not None and before.broker_epoch == request.previous_broker_epoch
    changes = leave(view, broker_id) if was_clean or not view.has_elr else leave_uncleanly(view, broker_id)
    return Registered(end_offset, True, list(changes), record)


def _is_new_run(view: ClusterView, request: BrokerRegistrationRequest) -> bool:
    before = view.broker(request.broker_id)
    return before is None or bytes(before.incarnation_id) != bytes(request.incarnation_id)


def _check_directories(view: ClusterView, request: BrokerRegistrationRequest) -> None:
    if view.metadata_version < DIRECTORIES_SINCE:
        return
    directories = [bytes(directory) for directory in request.log_dirs]
    if not directories:
        raise InvalidRegistration("No directories specified in request")
    if any(is_reserved(directory) for directory in directories):
        raise InvalidRegistration("Reserved directory ID in request")
    if len(set(directories)) != len(directories):
        raise InvalidRegistration("Duplicate directory ID in request")
    for other in view.image.cluster.brokers.values():
        shared = set(directories) & {bytes(directory) for directory in other.log_dirs}
        if shared and other.broker_id != request.broker_id:
            raise InvalidRegistration(
                f"Broker {other.broker_id} has already registered the log directory {min(shared).hex()}"
            )


def _check_endpoints(request: BrokerRegistrationRequest) -> None:
    if not request.listeners:
        raise InvalidRegistration(f"Broker {request.broker_id} has no listeners")
    names = [listener.name for listener in request.listeners]
    if len(set(names)) != len(names):
        raise InvalidRegistration(f"Broker {request.broker_id} has two listeners of one name: {', '.join(names)}")
    for listener in request.listeners:
        if listener.port == 0:
            raise InvalidRegistration(
                f"Listener {listener.name} of broker {request.broker_id} has the port 0, where nobody can reach it"
            )


def _check_features(request: BrokerRegistrationRequest, finalized: Mapping[str, int]) -> None:
    supported = {
        feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in request.features
    }
    if METADATA_VERSION not in supported:
        raise InvalidRegistration(
            "Request features do not contain 'metadata.version'. Brokers older than 3.3 cannot register."
        )
    for name, level in finalized.items():
        low, high = supported.get(name, (0, 0))
        if level and not low <= level <= high:
            raise UnsupportedVersion(
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {low} and {high}, inclusive."
            )
