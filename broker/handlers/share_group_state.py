"""InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and
ReadShareGroupStateSummary (API keys 83 to 87; KIP-932): what brokers ask the share coordinator."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from broker.coordinators.share.persister import SharePartitionKey, ShareState, StateBatch
from broker.coordinators.share.requests import Delete, Initialize, Read, StateAnswer, StateRequest, Summarize, Write
from broker.coordinators.share_coordinator import ShareCoordinator
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed
from protocol.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)


class ShareGroupStateHandler:
    """Asks the share coordinator for each share partition, and answers once all are decided.

    Each method raises `ClusterAuthorizationFailed`. As in Kafka a request without group or topics has an empty answer,
    and so has a request with a topic without partitions. Of a share partition that comes twice the last answer counts.
    """

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    def initialize_share_group_state(self, request: InitializeShareGroupStateRequest, context: RequestContext) -> None:
        """Begin states anew."""

        def ask(key: SharePartitionKey, asked: InitializeShareGroupStateRequest.Topic.Partition) -> StateRequest:
            return Initialize(key, asked.state_epoch, asked.start_offset)

        # Of these requests alone Kafka passes over a topic without partitions.
        asked = [topic for topic in request.topics if topic.partitions]
        named = InitializeShareGroupStateRequest(group_id=request.group_id, topics=asked)
        self._ask_all(named, context, ask, InitializeShareGroupStateResponse, _plain)

    def read_share_group_state(self, request: ReadShareGroupStateRequest, context: RequestContext) -> None:
        """Read states, and remember the leaders' epochs."""

        def ask(key: SharePartitionKey, asked: ReadShareGroupStateRequest.Topic.Partition) -> StateRequest:
            return Read(key, asked.leader_epoch)

        self._ask_all(request, context, ask, ReadShareGroupStateResponse, _read)

    def write_share_group_state(self, request: WriteShareGroupStateRequest, context: RequestContext) -> None:
        """Merge changes into states."""

        def ask(key: SharePartitionKey, asked: WriteShareGroupStateRequest.Topic.Partition) -> StateRequest:
            batches = [
                StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
                for one in asked.state_batches
            ]
            count = asked.delivery_complete_count
            return Write(key, ShareState(asked.state_epoch, asked.leader_epoch, asked.start_offset, count, batches))

        self._ask_all(request, context, ask, WriteShareGroupStateResponse, _plain)

    def delete_share_group_state(self, request: DeleteShareGroupStateRequest, context: RequestContext) -> None:
        """Forget states."""

        def ask(key: SharePartitionKey, asked: DeleteShareGroupStateRequest.Topic.Partition) -> StateRequest:
            return Delete(key)

        self._ask_all(request, context, ask, DeleteShareGroupStateResponse, _plain)

    def read_share_group_state_summary(
        self, request: ReadShareGroupStateSummaryRequest, context: RequestContext
    ) -> None:
        """Read states without their batches."""

        def ask(key: SharePartitionKey, asked: ReadShareGroupStateSummaryRequest.Topic.Partition) -> StateRequest:
            return Summarize(key, asked.leader_epoch)

        self._ask_all(request, context, ask, ReadShareGroupStateSummaryResponse, _summary)

    def _ask_all(
        self,
        request: Any,
        context: RequestContext,
        ask: Callable[[SharePartitionKey, Any], StateRequest],
        response: Any,
        fields: Callable[[type[Any], StateAnswer], dict[str, Any]],
    ) -> None:
        """Ask for each partition of the request. ``fields`` gives the fields of an answer beside the partition."""
        if not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not act for the cluster")
        if not request.group_id or any(not topic.partitions for topic in request.topics):
            context.respond(response(results=[]))
            return
        of_partition = response.Result.Partition
        results: dict[bytes, dict[int, Any]] = {}
        left = 1

        def done() -> None:
            nonlocal left
            left -= 1
            if not left:
                context.respond(
                    response(
                        results=[
                            response.Result(topic_id=topic_id, partitions=list(partitions.values()))
                            for topic_id, partitions in results.items()
                        ]
                    )
                )

        def answered(topic_id: bytes, index: int, answer: StateAnswer) -> None:
            results[topic_id][index] = of_partition(
                partition=index,
                error_code=answer.code,
                error_message=answer.message,
                **fields(of_partition, answer),
            )
            done()

        for topic in request.topics:
            places = results.setdefault(bytes(topic.topic_id), {})
            for asked in topic.partitions:
                left += 1
                places[asked.partition] = None  # keeps the place in the answer
                key = SharePartitionKey(request.group_id, bytes(topic.topic_id), asked.partition)
                self._coordinator.ask(ask(key, asked), partial(answered, key.topic_id, key.partition))
        done()


def _plain(_: type[Any], answer: StateAnswer) -> dict[str, Any]:
    return {}


def _read(of_partition: type[ReadShareGroupStateResponse.Result.Partition], answer: StateAnswer) -> dict[str, Any]:
    state = answer.state
    if state is None:
        return {"state_epoch": 0, "start_offset": 0, "state_batches": []}
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": _as_batches(of_partition, state.batches),
    }


def _as_batches(
    of_partition: type[ReadShareGroupStateResponse.Result.Partition], batches: Iterable[StateBatch]
) -> list[ReadShareGroupStateResponse.Result.Partition.StateBatch]:
    return [of_partition.StateBatch(**batch._asdict()) for batch in batches]


def _summary(_: type[Any], answer: StateAnswer) -> dict[str, Any]:
    state = answer.state
    if state is None:
        return {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0}
    return {
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "delivery_complete_count": state.delivery_complete_count,
    }
