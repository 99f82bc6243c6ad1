"""Elections of leaders: on request (KIP-183, KIP-460), and from time to time for balance."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from broker.controller.cluster_view import ClusterView
from broker.controller.partition_change import Election, Wanted, plan_change
from broker.metadata.image.records import Record
from broker.metadata.image.topics import PartitionImage, TopicImage
from broker.request.faults import InvalidRequest
from protocol.errors import ErrorCode
from protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse
from protocol.records.cluster_metadata import NO_LEADER

TopicResult = ElectLeadersResponse.ReplicaElectionResult
Result = ElectLeadersResponse.ReplicaElectionResult.PartitionResult

MAX_ELECTIONS: Final = 1_000
"""How many partitions one periodic election changes, as in Kafka."""


class ElectionType(IntEnum):
    """Whom to elect, by the codes of the protocol."""

    PREFERRED = 0
    """The first replica."""
    UNCLEAN = 1
    """Any replica, in sync or not, where there is no leader."""


class Elected(NamedTuple):
    """Records of a periodic election."""

    records: list[Record]
    has_more: bool
    """There are more partitions to look at than one election changes."""


class ElectionPlanner:
    """Plans the elections of one request; collects ``records``."""

    def __init__(self, view: ClusterView, election_type: int) -> None:
        """Raises InvalidRequest for an election type that there is not."""
        if election_type not in tuple(ElectionType):
            raise InvalidRequest(f"Unknown election type {election_type}")
        self._view = view
        self._type = ElectionType(election_type)
        self._elected: set[tuple[bytes, int]] = set()
        self.records: list[Record] = []

    def plan(self, asked: Iterable[ElectLeadersRequest.TopicPartitions] | None) -> ElectLeadersResponse:
        """The response to send once the records are durable. None asks for all partitions that need an election."""
        if asked is None:
            results = [
                TopicResult(
                    topic=topic.name,
                    partition_result=[
                        result
                        for partition in topic.partitions
                        if (result := self._result(topic, partition)).error_code != ErrorCode.ELECTION_NOT_NEEDED
                    ],
                )
                for topic in self._view.image.topics.by_name.values()
            ]
        else:
            results = [
                TopicResult(
                    topic=one.topic, partition_result=[self._named(one.topic, index) for index in one.partitions]
                )
                for one in asked
            ]
        return ElectLeadersResponse(replica_election_results=results)

    def _named(self, name: str, index: int) -> Result:
        topic = self._view.image.topics.by_name.get(name)
        if topic is None:
            return _refusal(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
        partition = topic.partition(index)
        if partition is None:
            return _refusal(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
        return self._result(topic, partition)

    def _result(self, topic: TopicImage, partition: PartitionImage) -> Result:
        is_preferred = self._type is ElectionType.PREFERRED
        if _has_preferred_leader(partition) if is_preferred else partition.leader != NO_LEADER:
            text = "Leader election not needed for topic partition."
            return _refusal(partition.index, ErrorCode.ELECTION_NOT_NEEDED, text)
        election = Election.PREFERRED if is_preferred else Election.UNCLEAN
        record = plan_change(self._view, topic, partition, Wanted(election=election))
        if record is None and is_preferred:
            text = "The preferred leader was not available."
            return _refusal(partition.index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
        if record is None:
            text = "Eligible topic partition leaders are not available."
            return _refusal(partition.index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
        where = (topic.topic_id, partition.index)
        if where not in self._elected:  # the request may name a partition twice
            self._elected.add(where)
            self.records.append(record)
        return Result(partition_id=partition.index, error_message=None)


def balance_leaders(view: ClusterView) -> Elected:
    """Let partitions be led by their first replicas again, where these are in sync."""
    return _elect_all(
        view,
        Election.PREFERRED,
        ((topic, partition) for topic, partition in view.partitions() if not _has_preferred_leader(partition)),
    )


def elect_unclean_leaders(view: ClusterView) -> Elected:
    """Give partitions without a leader any leader, where ``unclean.leader.election.enable`` allows it."""
    return _elect_all(
        view,
        Election.UNCLEAN,
        (
            (topic, partition)
            for topic, partition in view.partitions()
            if partition.leader == NO_LEADER and view.allows_unclean_leaders(topic)
        ),
    )


def _elect_all(
    view: ClusterView, election: Election, partitions: Iterable[tuple[TopicImage, PartitionImage]]
) -> Elected:
    records: list[Record] = []
    for topic, partition in partitions:
        record = plan_change(view, topic, partition, Wanted(election=election))
        if record is not None:
            if len(records) == MAX_ELECTIONS:
                return Elected(records, has_more=True)
            records.append(record)
    return Elected(records, has_more=False)


def _has_preferred_leader(partition: PartitionImage) -> bool:
    return bool(partition.replicas) and partition.leader == partition.replicas[0]


def _refusal(index: int, code: ErrorCode, text: str) -> Result:
    return Result(partition_id=index, error_code=code, error_message=text)
