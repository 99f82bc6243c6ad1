"""IsrAlterer: how a leader has the controller change the ISR of a partition, wherever the controller is (KIP-497)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

_GIVEN_UP: Final = {ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED}

_OUTDATED: Final = {
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class WantedIsr(NamedTuple):
    """The ISR that a leader wants for a partition."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    """The version of the partition that it changes."""
    isr: Mapping[int, int]
    """The epoch of each broker's registration by its id."""


class IsrCommitted(NamedTuple):
    """The controller has changed the ISR, or it was as wanted."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class IsrRefused(NamedTuple):
    """The controller will not make the change: the committed ISR counts."""


class IsrOutdated(NamedTuple):
    """The controller has another version of the partition, of which the metadata log will tell. Until then the change
    counts as wanted, since it may have been made."""


Outcome: TypeAlias = IsrCommitted | IsrRefused | IsrOutdated
Then: TypeAlias = Callable[[Outcome], None]


class IsrAlterer(Protocol):
    """Has the controller change ISRs."""

    def submit(self, wanted: WantedIsr, then: Then) -> bool:
        """Ask for a change; ``then`` is called on the loop with the outcome. False, and nothing is done, while another
        change of the partition has no outcome yet."""

    def withdraw(self, topic_id: bytes, partition: int) -> None:
        """Forget a partition that this broker leads no more: its change has no outcome."""


def alteration_request(wanted: Sequence[WantedIsr], node_id: int, broker_epoch: int) -> AlterPartitionRequest:
    """The request for these changes, from the broker ``node_id`` in this epoch of its registration."""
    of_topic = AlterPartitionRequest.Topic
    by_topic: dict[bytes, list[AlterPartitionRequest.Topic.Partition]] = {}
    for one in wanted:
        partition = of_topic.Partition(
            partition_index=one.partition,
            leader_epoch=one.leader_epoch,
            # Version 2 has the ids alone.
            new_isr=list(one.isr),
            new_isr_with_epochs=[
                of_topic.Partition.BrokerState(broker_id=broker, broker_epoch=epoch)
                for broker, epoch in one.isr.items()
            ],
            partition_epoch=one.partition_epoch,
        )
        by_topic.setdefault(one.topic_id, []).append(partition)
    return AlterPartitionRequest(
        broker_id=node_id,
        broker_epoch=broker_epoch,
        topics=[of_topic(topic_id=topic_id, partitions=found) for topic_id, found in by_topic.items()],
    )


def outcome_of(answer: AlterPartitionResponse.Topic.Partition) -> Outcome | None:
    """What the controller's answer means; None if the change is to be asked for again."""
    if answer.error_code == ErrorCode.NONE:
        return IsrCommitted(tuple(answer.isr), answer.leader_epoch, answer.partition_epoch)
    if answer.error_code in _GIVEN_UP:
        return IsrRefused()
    return IsrOutdated() if answer.error_code in _OUTDATED else None
