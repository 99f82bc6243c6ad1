"""The answer to a produce request: from its batches' staging to the last acknowledgement."""

from collections.abc import Collection

from broker.handlers.partition_lookup import PartitionLookup
from broker.replication.append import Publication
from broker.replication.replica_manager import ReplicaManager
from broker.request.code_versions import known_code
from broker.request.context import RequestContext
from broker.request.faults import Fault, error_code_of
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceResponse
from storage.appending import StagedAppend
from storage.errors import StorageError

TopicAnswer = ProduceResponse.Response
Answer = ProduceResponse.Response.PartitionResponse

NO_ACKS = 0
ALL_ACKS = -1

LEADER_SINCE_VERSION = 10


class PendingAnswer:
    """A produce request until its answer is due."""

    __slots__ = (
        "_acks",
        "_late",
        "_partitions",
        "_replicas",
        "_timeout_ms",
        "context",
        "has_errors",
        "response",
        "unsettled",
    )

    def __init__(
        self,
        acks: int,
        timeout_ms: int,
        context: RequestContext,
        replicas: ReplicaManager,
        partitions: PartitionLookup,
    ) -> None:
        self._acks = acks
        self._timeout_ms = timeout_ms
        self.context = context
        self._replicas = replicas
        self._partitions = partitions
        self._late: list[tuple[Answer, Publication]] = []
        """What is written and not acknowledged yet."""
        self.response = ProduceResponse(responses=[])
        self.has_errors = False
        self.unsettled = 1
        """Batches staged and not yet written; and one for the staging itself."""

    def settle(self, answer: Answer, staged: StagedAppend, outcome: Publication | StorageError | Fault) -> None:
        """A staged batch is written, or could not be."""
        if isinstance(outcome, Publication):
            _say_where(answer, outcome, staged.first_offset, staged.log_append_time_ms)
            if not outcome.is_complete:
                self._late.append((answer, outcome))
        else:
            self.has_errors = True
            answer.error_code = code_of(outcome, self.context.api_version)
            if isinstance(outcome, StorageError):
                answer.error_message = outcome.message_for_client
        self.settle_one()

    def settle_late(
        self,
        answer: Answer,
        publication: Publication,
        late: Collection[Publication],
        *,
        first_offset: int,
        log_append_time_ms: int,
    ) -> None:
        """The only batch is written and has waited: its acknowledgement has not come, or with too few replicas."""
        _say_where(answer, publication, first_offset, log_append_time_ms)
        self._late.append((answer, publication))
        self._acknowledged(late)

    def settle_one(self) -> None:
        """One thing less to wait for; after the last one comes the acknowledgement."""
        self.unsettled -= 1
        if self.unsettled:
            return
        if self._acks == NO_ACKS:
            if self.has_errors:
                # The producer expects no answer: a closed connection is the only sign that it gets.
                self.context.count_errors(self.response)
                self.context.close_connection("a batch sent with acks=0 was refused")
            else:
                self.context.respond_nothing()
        elif not self._late:
            self._respond()
        else:
            self._replicas.acknowledge(
                {publication for _, publication in self._late},
                by_all=self._acks == ALL_ACKS,
                timeout_ms=self._timeout_ms,
                then=self._acknowledged,
            )

    def _acknowledged(self, late: Collection[Publication]) -> None:
        for answer, publication in self._late:
            if publication in late:
                self.has_errors = True
                answer.error_code = (
                    code_of(publication.why_lost(), self.context.api_version)
                    if publication.is_lost
                    else ErrorCode.REQUEST_TIMED_OUT
                )
            elif self._acks == ALL_ACKS and publication.has_too_few_replicas:
                # The records are there, and on fewer replicas than the topic demands.
                answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        self._respond()

    def _respond(self) -> None:
        if self.has_errors and self.context.api_version >= LEADER_SINCE_VERSION:
            self._name_leaders()
        self.context.respond(self.response)

    def _name_leaders(self) -> None:
        """Say of each partition that is not led here who leads it, and where (KIP-951)."""
        listener = self.context.peer.listener
        for topic in self.response.responses:
            for answer in topic.partition_responses:
                if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    name = topic.name or self._partitions.topic_name(topic.topic_id)
                    answer.current_leader = self._partitions.current_leader(
                        name, answer.index, listener,
                        Answer.CurrentLeader, self.response.node_endpoints, ProduceResponse.NodeEndpoint,
                    )  # fmt: skip


def _say_where(answer: Answer, publication: Publication, first_offset: int, log_append_time_ms: int) -> None:
    """Answer that a batch is in the log."""
    answer.base_offset = first_offset
    answer.log_append_time_ms = log_append_time_ms
    answer.log_start_offset = publication.partition.log.log_start_offset


def code_of(error: Exception, version: int) -> ErrorCode:
    """The code of an error as this version of the API knows it."""
    return known_code(error_code_of(error), ApiKey.PRODUCE, version)
