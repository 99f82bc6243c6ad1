"""RemoteShareStates: asks the share coordinators on other brokers (API keys 83 to 87)."""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from broker.coordinators.node_requests import Failed, NodeRequest, NodeRequests, code_of
from broker.coordinators.share.persister import NOT_COUNTED, SharePartitionKey, ShareState, StateBatch
from broker.coordinators.share.requests import (
    Delete,
    Initialize,
    Read,
    StateAnswer,
    StateReply,
    StateRequest,
    Summarize,
    Write,
)
from broker.peers.errors import PeerError
from broker.peers.nodes import Nodes
from protocol.errors import ErrorCode
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

MOST_IN_A_REQUEST: Final = 1_000
"""Share partitions in one request."""


class _Api(NamedTuple):
    """How a kind of request goes over the wire."""

    request: Any
    response: Any
    fields: Callable[[Any], dict[str, Any]]
    """The fields of a partition in the request, beside the partition itself."""
    state: Callable[[Any, Any], ShareState | None]
    """What a partition in the response says about the state, which was asked for by this request."""


def _no_state(_: Any, __: Any) -> None:
    return None


def _write_fields(asked: Write) -> dict[str, Any]:
    of_batch = WriteShareGroupStateRequest.Topic.Partition.StateBatch
    state = asked.state
    return {
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "delivery_complete_count": state.delivery_complete_count,
        "state_batches": [of_batch(**batch._asdict()) for batch in state.batches],
    }


def _read_state(asked: Read, found: ReadShareGroupStateResponse.Result.Partition) -> ShareState:
    batches = [
        StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in found.state_batches
    ]
    return ShareState(found.state_epoch, asked.leader_epoch, found.start_offset, NOT_COUNTED, batches)


def _summary(_: Summarize, found: ReadShareGroupStateSummaryResponse.Result.Partition) -> ShareState:
    return ShareState(found.state_epoch, found.leader_epoch, found.start_offset, found.delivery_complete_count, ())


_APIS: Final[dict[type[StateRequest], _Api]] = {
    Initialize: _Api(
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
        lambda asked: {"state_epoch": asked.state_epoch, "start_offset": asked.start_offset},
        _no_state,
    ),
    Read: _Api(
        ReadShareGroupStateRequest,
        ReadShareGroupStateResponse,
        lambda asked: {"leader_epoch": asked.leader_epoch},
        _read_state,
    ),
    Write: _Api(WriteShareGroupStateRequest, WriteShareGroupStateResponse, _write_fields, _no_state),
    Delete: _Api(DeleteShareGroupStateRequest, DeleteShareGroupStateResponse, lambda asked: {}, _no_state),
    Summarize: _Api(
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
        lambda asked: {"leader_epoch": asked.leader_epoch},
        _summary,
    ),
}

_Question = tuple[StateRequest, StateReply]


class RemoteShareStates:
    """Asks coordinators as Kafka's persister does: what waits for a coordinator, is of one kind and is about one group
    goes in one request, and each coordinator has one request of a kind in flight."""

    def __init__(self, nodes: Nodes, *, on_failure: Failed) -> None:
        """``nodes`` is for these requests alone, and is closed with this; ``on_failure`` is called with a bug."""
        self._kinds = {kind: _Kind(nodes, api, on_failure) for kind, api in _APIS.items()}

    def __len__(self) -> int:
        """How many requests wait to be sent; those that were sent and not answered do not count."""
        return sum(map(len, self._kinds.values()))

    def ask(self, node_id: int, request: StateRequest, reply: StateReply) -> None:
        """Ask a coordinator. ``reply`` is called once, in a later turn of the loop where the coordinator answers; with
        NETWORK_EXCEPTION if it gives no answer, as when this broker stops."""
        self._kinds[type(request)].ask(node_id, request, reply)

    async def close(self) -> None:
        """Ask nothing any more, and close the connections; what waits is answered NETWORK_EXCEPTION."""
        for kind in self._kinds.values():
            await kind.close()


class _Kind:
    """The requests of one kind."""

    def __init__(self, nodes: Nodes, api: _Api, on_failure: Failed) -> None:
        self._api = api
        self._requests: NodeRequests[list[_Question], Any] = NodeRequests(
            nodes, api.response, take=self._take, settle=self._settle, on_failure=on_failure
        )
        self._waiting: dict[int, dict[str, list[_Question]]] = {}
        """By coordinator and group."""

    def __len__(self) -> int:
        return sum(len(questions) for groups in self._waiting.values() for questions in groups.values())

    def ask(self, node_id: int, request: StateRequest, reply: StateReply) -> None:
        if self._requests.is_closed:
            reply(_NO_ANSWER)
            return
        self._waiting.setdefault(node_id, {}).setdefault(request.key.group_id, []).append((request, reply))
        self._requests.wake(node_id)

    async def close(self) -> None:
        await self._requests.close()
        waiting, self._waiting = self._waiting, {}
        for groups in waiting.values():
            for questions in groups.values():
                _answer_all(questions)

    def _take(self, node_id: int) -> NodeRequest[list[_Question]] | None:
        """The questions about one group, of each share partition the first: the answer tells them apart by it."""
        groups = self._waiting.get(node_id)
        if not groups:
            self._waiting.pop(node_id, None)
            return None
        group_id = next(iter(groups))
        taken: dict[SharePartitionKey, _Question] = {}
        left: list[_Question] = []
        for question in groups.pop(group_id):
            if question[0].key in taken or len(taken) == MOST_IN_A_REQUEST:
                left.append(question)
            else:
                taken[question[0].key] = question
        if left:
            groups[group_id] = left  # behind the other groups
        return NodeRequest(self._message(group_id, taken.values()), list(taken.values()))

    def _message(self, group_id: str, questions: Iterable[_Question]) -> object:
        of_topic = self._api.request.Topic
        by_topic: dict[bytes, list[Any]] = {}
        for request, _ in questions:
            partition = of_topic.Partition(partition=request.key.partition, **self._api.fields(request))
            by_topic.setdefault(request.key.topic_id, []).append(partition)
        topics = [of_topic(topic_id=topic_id, partitions=found) for topic_id, found in by_topic.items()]
        message: object = self._api.request(group_id=group_id, topics=topics)
        return message

    def _settle(self, questions: list[_Question], answer: Any) -> None:
        if isinstance(answer, PeerError):
            _answer_all(questions)
            return
        found = {
            (bytes(result.topic_id), partition.partition): partition
            for result in answer.results
            for partition in result.partitions
        }
        for request, reply in questions:
            partition = found.get((request.key.topic_id, request.key.partition))
            if partition is None:
                reply(StateAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator's answer has no such partition"))
                continue
            code = code_of(partition.error_code)
            state = self._api.state(request, partition) if code is ErrorCode.NONE else None
            reply(StateAnswer(code, partition.error_message, state))


def _answer_all(questions: Iterable[_Question]) -> None:
    for _, reply in questions:
        reply(_NO_ANSWER)


_NO_ANSWER: Final = StateAnswer(ErrorCode.NETWORK_EXCEPTION, "the coordinator gives no answer")
