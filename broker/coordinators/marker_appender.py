"""MarkerAppender: writes one marker of an ended transaction into one partition of this node."""

from functools import partial
from typing import Any, Final

from broker.coordinators.result import Completion
from broker.coordinators.runtime import CoordinatorRuntime
from broker.metadata.topic_rules import CONSUMER_OFFSETS
from broker.replication.append import Publication
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_marker import TransactionMarker
from broker.request.faults import Fault, error_code_of
from protocol.errors import ErrorCode
from storage.appending import StagedAppend
from storage.errors import StorageError

TIMEOUT_MS: Final = 30_000
"""How long a marker waits to be acknowledged (Kafka: `request.timeout.ms`)."""


class MarkerAppender:
    """Appends markers to partitions. Where a coordinator keeps its state in the partition, it writes the marker itself,
    since it has to replay the marker behind the records of the transaction."""

    def __init__(self, replicas: ReplicaManager, groups: CoordinatorRuntime[Any]) -> None:
        self._replicas = replicas
        self._runtimes = {CONSUMER_OFFSETS: groups}

    def route(self, topic: str, runtime: CoordinatorRuntime[Any]) -> None:
        """Let the coordinators of ``topic`` write the markers for its partitions."""
        self._runtimes[topic] = runtime

    def append(self, topic: str, index: int, marker: TransactionMarker, then: Completion) -> None:
        """Write a marker; ``then`` is called once, in this turn or later: with NONE after the marker is acknowledged
        (and replayed by the partition's coordinator), else with the error.

        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, COORDINATOR_LOAD_IN_PROGRESS and
        NOT_COORDINATOR may pass. REQUEST_TIMED_OUT: the marker may be in the log; a second one does no harm.
        INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED: a later marker has been written.
        """
        try:
            partition = self._replicas.partition(topic, index)
            partition.check_append(by_all=True)
            runtime = self._runtimes.get(topic)
            if runtime is None:
                self._replicas.appender.append_marker(partition, marker, partial(self._written, then))
        except (Fault, StorageError) as error:
            then(error_code_of(error))
            return
        if runtime is not None:
            runtime.append_marker(index, marker, then)

    def _written(self, then: Completion, _: StagedAppend, outcome: Publication | StorageError | Fault) -> None:
        if not isinstance(outcome, Publication):
            then(error_code_of(outcome))
        elif outcome.is_complete:
            then(ErrorCode.NONE)
        else:
            self._replicas.acknowledge(
                (outcome,),
                by_all=True,
                timeout_ms=TIMEOUT_MS,
                then=lambda late: then(_code_of_waiting(outcome, is_late=bool(late))),
            )


def _code_of_waiting(publication: Publication, *, is_late: bool) -> ErrorCode:
    if publication.is_lost:
        return error_code_of(publication.why_lost())
    return ErrorCode.REQUEST_TIMED_OUT if is_late else ErrorCode.NONE
