"""DirectoryAssignments: tells the controller in which log directories this broker's replicas are (KIP-858)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.membership.controller_channel import ControllerChannel
from broker.metadata.directories import LOST
from broker.runtime.backoff import Backoff
from broker.runtime.clock import Clock
from broker.runtime.waiting import set_by
from protocol.errors import ErrorCode
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from storage.errors import StorageError

MOST_ASSIGNMENTS: Final = 2_250
"""Replicas in one AssignReplicasToDirs, as in Kafka."""

FULL_DISK_RETRY_MS: Final = 1_000
"""After how long it is told again where the controller in this process could not write its metadata log."""

_GONE: Final = {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""This broker has no such replica any more: as in Kafka, the controller is not told of it again."""


class DirectoryAssignments:
    """What one broker has to tell of its replicas. `run` is a task of the broker."""

    def __init__(
        self,
        channel: ControllerChannel,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        known_directories: Callable[[], Sequence[bytes] | None],
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        """``known_directories``: the log directories in this broker's registration, by the metadata that it has
        applied; None where the level of the cluster does not have them."""
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._known_directories = known_directories
        self._clock = clock
        self._backoff = backoff
        self._places: dict[tuple[bytes, int], bytes] = {}
        """The log directory of each replica that the controller is to know, by topic id and partition."""
        self._when_assigned: dict[tuple[bytes, int], Callable[[], None]] = {}
        """What is called once it knows."""
        self._when_told: list[Callable[[], None]] = []
        self._is_wanted = asyncio.Event()
        """Set where something is to be told, and nothing was before: a pause ends for it."""

    def assign(
        self, topic_id: bytes, partition: int, directory_id: bytes, then: Callable[[], None] | None = None
    ) -> None:
        """Tell the controller in which log directory (its id of 16 bytes) a replica of this broker is.

        ``then`` is called once it knows. It is not called where another directory is told before, or this broker has
        no such replica any more by its answer: the metadata log will say so.

        Below the level that has log directories the controller is told nothing, and ``then`` is called at once.
        """
        if not self._known_directories():
            if then is not None:
                then()
            return
        if not self._places:
            self._is_wanted.set()
        self._places[topic_id, partition] = directory_id
        self._when_assigned.pop((topic_id, partition), None)
        if then is not None:
            self._when_assigned[topic_id, partition] = then

    def lost(self, topic_id: bytes, partition: int) -> None:
        """Tell the controller that a replica of this broker is in no directory any more."""
        self.assign(topic_id, partition, LOST)

    def when_told(self, then: Callable[[], None]) -> None:
        """Call ``then`` once the controller has been told of what waits, or could not be told now."""
        if self._places:
            self._when_told.append(then)
        else:
            then()

    @property
    def waiting(self) -> int:
        """How many replicas the controller is still to be told of."""
        return len(self._places)

    async def run(self) -> None:
        """Tell until the task is cancelled."""
        try:
            while True:
                await self._is_wanted.wait()
                self._is_wanted.clear()
                while (pause_ms := await self._tell_all()) is not None:
                    await set_by(self._clock, self._clock.monotonic_ms() + pause_ms, self._is_wanted)
                    self._is_wanted.clear()
                self._backoff.reset()
        finally:
            self._channel.close()

    async def _tell_all(self) -> int | None:
        """Tell the controller of all places. The pause before some are told again; None if it knows all."""
        pause_ms = await self._tell()
        called, self._when_told = self._when_told, []
        for then in called:
            then()
        return pause_ms

    async def _tell(self) -> int | None:
        while self._places:
            sent = dict(list(self._places.items())[:MOST_ASSIGNMENTS])
            try:
                answer = await self._channel.ask(
                    _request(self._node_id, self._broker_epoch(), sent), AssignReplicasToDirsResponse
                )
            except StorageError:  # which the metadata log has logged
                return FULL_DISK_RETRY_MS
            if answer is None or answer.error_code != ErrorCode.NONE:
                return self._backoff.next_ms()
            for directory in answer.directories:
                for topic in directory.topics:
                    for partition in topic.partitions:
                        place = bytes(topic.topic_id), partition.partition_index
                        if place in sent and self._places.get(place) == sent[place]:
                            self._settle(place, partition.error_code)
            if any(self._places.get(place) == directory_id for place, directory_id in sent.items()):
                return self._backoff.next_ms()
        return None

    def _settle(self, place: tuple[bytes, int], code: int) -> None:
        if code == ErrorCode.NONE or code in _GONE:
            del self._places[place]
            then = self._when_assigned.pop(place, None)
            if then is not None and code == ErrorCode.NONE:
                then()


def _request(node_id: int, broker_epoch: int, places: Mapping[tuple[bytes, int], bytes]) -> AssignReplicasToDirsRequest:
    of_directory = AssignReplicasToDirsRequest.Directory
    of_topic = of_directory.Topic
    by_directory: dict[bytes, dict[bytes, list[int]]] = {}
    for (topic_id, partition), directory_id in places.items():
        by_directory.setdefault(directory_id, {}).setdefault(topic_id, []).append(partition)
    return AssignReplicasToDirsRequest(
        broker_id=node_id,
        broker_epoch=broker_epoch,
        directories=[
            of_directory(
                id=directory_id,
                topics=[
                    of_topic(
                        topic_id=topic_id,
                        partitions=[of_topic.Partition(partition_index=index) for index in indexes],
                    )
                    for topic_id, indexes in topics.items()
                ],
            )
            for directory_id, topics in by_directory.items()
        ],
    )
