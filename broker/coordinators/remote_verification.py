"""RemoteVerification: asks coordinators on other brokers about transactions in partitions that this broker leads."""

from collections import deque
from typing import NamedTuple

from broker.coordinators.node_requests import Failed, NodeRequest, NodeRequests, code_of
from broker.coordinators.transaction.requests import AddPartitions
from broker.coordinators.transaction.verification import Verified
from broker.peers.errors import PeerError
from broker.peers.nodes import Nodes
from protocol.errors import ErrorCode
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)


class _Question(NamedTuple):
    """What is asked about one transaction."""

    about: AddPartitions
    is_verified_only: bool
    then: Verified

    def answer_all(self, code: ErrorCode) -> None:
        self.then([code] * len(self.about.partitions))


class RemoteVerification:
    """Sends AddPartitionsToTxn to coordinators, as Kafka's AddPartitionsToTxnManager does: all questions that wait for
    one coordinator in one request, one request at a time."""

    def __init__(self, nodes: Nodes, *, on_failure: Failed) -> None:
        """``nodes`` is for these requests alone, and is closed with this; ``on_failure`` is called with a bug."""
        self._requests: NodeRequests[list[_Question], AddPartitionsToTxnResponse] = NodeRequests(
            nodes, AddPartitionsToTxnResponse, take=self._take, settle=_settle, on_failure=on_failure
        )
        self._waiting: dict[int, deque[_Question]] = {}

    def __len__(self) -> int:
        """How many questions wait to be sent; those that were sent and not answered do not count."""
        return sum(map(len, self._waiting.values()))

    @property
    def in_flight(self) -> int:
        """How many coordinators are being asked."""
        return self._requests.in_flight

    def ask(self, node_id: int, about: AddPartitions, then: Verified, *, is_verified_only: bool) -> None:
        """Ask a coordinator to add the partitions, or only whether they are in the transaction.

        ``then`` is called once, in a later turn of the loop, with a code for each partition in their order: the
        coordinator's, where INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED; or NETWORK_EXCEPTION if it gives no
        answer, as when this broker stops.
        """
        question = _Question(about, is_verified_only, then)
        if self._requests.is_closed:
            question.answer_all(ErrorCode.NETWORK_EXCEPTION)
            return
        self._waiting.setdefault(node_id, deque()).append(question)
        self._requests.wake(node_id)

    async def close(self) -> None:
        """Ask nothing any more, and close the connections; what waits is answered NETWORK_EXCEPTION."""
        await self._requests.close()
        waiting, self._waiting = self._waiting, {}
        for questions in waiting.values():
            for question in questions:
                question.answer_all(ErrorCode.NETWORK_EXCEPTION)

    def _take(self, node_id: int) -> NodeRequest[list[_Question]] | None:
        """The questions that wait, of each transactional id the first: the answer tells them apart by the id."""
        waiting = self._waiting.pop(node_id, None)
        if waiting is None:
            return None
        taken: dict[str, _Question] = {}
        left: deque[_Question] = deque()
        for question in waiting:
            transactional_id = question.about.transactional_id
            if transactional_id in taken:
                left.append(question)
            else:
                taken[transactional_id] = question
        if left:
            self._waiting[node_id] = left
        questions = list(taken.values())
        return NodeRequest(AddPartitionsToTxnRequest(transactions=[_transaction(one) for one in questions]), questions)


def _transaction(question: _Question) -> AddPartitionsToTxnRequest.Transaction:
    by_topic: dict[str, list[int]] = {}
    for topic, index in question.about.partitions:
        by_topic.setdefault(topic, []).append(index)
    return AddPartitionsToTxnRequest.Transaction(
        transactional_id=question.about.transactional_id,
        producer_id=question.about.producer.producer_id,
        producer_epoch=question.about.producer.producer_epoch,
        verify_only=question.is_verified_only,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in by_topic.items()],
    )


def _settle(questions: list[_Question], answer: AddPartitionsToTxnResponse | PeerError) -> None:
    if isinstance(answer, PeerError):
        for question in questions:
            question.answer_all(ErrorCode.NETWORK_EXCEPTION)
        return
    if answer.error_code != ErrorCode.NONE:
        code = code_of(answer.error_code)
        if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            code = ErrorCode.INVALID_TXN_STATE  # as in Kafka: the producer is not the one that lacks the right
        for question in questions:
            question.answer_all(code)
        return
    codes = {
        (transaction.transactional_id, topic.name, partition.partition_index): partition.partition_error_code
        for transaction in answer.results_by_transaction
        for topic in transaction.topic_results
        for partition in topic.results_by_partition
    }
    for question in questions:
        transactional_id = question.about.transactional_id
        question.then(
            [
                _for_leaders(codes.get((transactional_id, *partition), ErrorCode.COORDINATOR_NOT_AVAILABLE))
                for partition in question.about.partitions
            ]
        )


def _for_leaders(number: int) -> ErrorCode:
    """A coordinator's code as a partition's leader passes it on: a fenced producer has an epoch of the past."""
    code = code_of(number)
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
