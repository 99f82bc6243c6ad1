"""Partitions that had nothing for a consumer, and have nothing until they change.

A consumer without a fetch session names all its partitions in every request, and most of them have got nothing since
the last one. So its connection remembers what was answered for each entry of a request that gave nothing. The same
bytes get the same answer, until the partition says that it has changed: what fetch sessions live on, too.

    entry of the request: index, offset, ...   ->   entry of the answer: index, high watermark, ..., no records

In which order the entries come does not matter (librdkafka begins with another one every time).
"""

from typing import Final

from broker.replication.partition import Partition
from broker.runtime.purgatory import Purgatory

MOST_IN_ALL: Final = 50_000
"""Partitions that all connections together remember: 36 MB at most."""

MOST_FOR_EACH_NAMED: Final = 2
"""What a connection remembers, for each partition of its largest request: what it names no more is among them."""


class Room:
    """How many partitions all connections together may remember still."""

    __slots__ = ("left",)

    def __init__(self, left: int = MOST_IN_ALL) -> None:
        self.left = left


class QuietPartition:
    """One of them, and what was asked of it: a `broker.replication.partition.PartitionWatcher`."""

    __slots__ = ("_topic", "index", "partition", "piece")

    def __init__(self, topic: "UnchangedTopic", index: int, piece: bytes, partition: Partition) -> None:
        self._topic = topic
        self.index = index
        self.piece = piece
        """Its entry in the request."""
        self.partition = partition

    def partition_changed(self) -> None:
        """It may have something now."""
        self._topic.changed(self)


class UnchangedTopic:
    """Those of one topic."""

    __slots__ = ("_consumer", "answers", "partitions")

    def __init__(self, consumer: "UnchangedPartitions") -> None:
        self._consumer = consumer
        self.answers: dict[bytes, bytes] = {}
        """Entries of requests, and what was answered."""
        self.partitions: dict[int, QuietPartition] = {}
        """By their indexes."""

    def one(self) -> Partition:
        """Any of them. There must be one."""
        return next(iter(self.partitions.values())).partition

    def add(self, index: int, piece: bytes, partition: Partition, answer: bytes) -> bool:
        """Answer ``piece`` so from now on. False: there is no room."""
        before = self.partitions.get(index)
        if before is not None:
            self.remove(before)
        if not self._consumer.take_room():
            return False
        quiet = self.partitions[index] = QuietPartition(self, index, piece, partition)
        self.answers[piece] = answer
        partition.watch(quiet)
        return True

    def changed(self, quiet: QuietPartition) -> None:
        """One of them is quiet no more."""
        self.remove(quiet)
        self._consumer.partition_changed()

    def remove(self, quiet: QuietPartition) -> None:
        """Forget it."""
        quiet.partition.unwatch(quiet)
        del self.partitions[quiet.index], self.answers[quiet.piece]
        self._consumer.give_room()


class UnchangedPartitions:
    """Those of one connection, for requests of one version and isolation; what waits for them to change, waits under
    this in the purgatory."""

    __slots__ = ("_is_closed", "_most", "_purgatory", "_remembered", "_room", "_terms", "topics")

    def __init__(self, purgatory: Purgatory, room: Room) -> None:
        self._purgatory = purgatory
        self._room = room
        self._terms: tuple[int, int] | None = None
        self._most = 0
        self._remembered = 0
        self._is_closed = False
        self.topics: dict[bytes, UnchangedTopic] = {}
        """By their names or ids, as requests have them."""

    def __len__(self) -> int:
        return self._remembered

    def begin(self, version: int, isolation_level: int, partitions: int) -> bool:
        """A request names so many partitions. False: what is remembered is of no use to it, and another one waits for
        it to change."""
        terms = version, isolation_level
        most = max(self._most, partitions * MOST_FOR_EACH_NAMED)
        if terms != self._terms or max(self._remembered, len(self.topics)) > most - partitions:
            if self._purgatory.holds(self):
                return False
            self._forget()
        self._terms = terms
        self._most = most
        return True

    def topic(self, encoded: bytes) -> UnchangedTopic:
        """What is known of a topic's partitions."""
        known = self.topics.get(encoded)
        if known is None:
            known = self.topics[encoded] = UnchangedTopic(self)
        return known

    def partition_changed(self) -> None:
        """One of them is quiet no more: whoever waits for that may look."""
        self._purgatory.check(self)

    def take_room(self) -> bool:
        """Whether one more may be remembered; it counts from now on."""
        if self._is_closed or not self._room.left:
            return False
        self._room.left -= 1
        self._remembered += 1
        return True

    def give_room(self) -> None:
        """One is forgotten."""
        self._room.left += 1
        self._remembered -= 1

    def close(self) -> None:
        """The connection is gone: remember nothing any more."""
        self._is_closed = True
        self._forget()

    def _forget(self) -> None:
        for topic in self.topics.values():
            for quiet in tuple(topic.partitions.values()):
                topic.remove(quiet)
        self.topics.clear()
