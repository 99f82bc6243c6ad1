"""Partitions that had nothing for a consumer, and have nothing until they change.

A consumer without a fetch session names all its partitions in every request, and most of them have got nothing since
the last one. So its connection remembers what was answered for each entry of a request that gave nothing. The same
bytes get the same answer, until the partition says that it has changed. (Fetch sessions rely on the same notice.)

    entry of the request: index, offset, ...   ->   entry of the answer: index, high watermark, ..., no records

The order of the entries does not matter (librdkafka begins with another one every time).
"""

from typing import Final

from broker.fetch.read_rules import FetchRequirements
from broker.replication.partition import Partition
from broker.runtime.purgatory import Purgatory
from protocol.fetch_layout import Entry

MOST_IN_ALL: Final = 50_000
"""Partitions that all connections together remember: 40 MB at most."""

MOST_FOR_EACH_NAMED: Final = 2
"""Partitions that a connection remembers, for each partition of its largest request: some are no longer named."""


class MemoryBudget:
    """How many partitions all connections together may still remember."""

    __slots__ = ("left",)

    def __init__(self, left: int = MOST_IN_ALL) -> None:
        self.left = left


class UnchangedPartition:
    """A partition with nothing for the consumer, and the entry that asked for it: a
    `broker.replication.partition.PartitionWatcher`."""

    __slots__ = (
        "_fetch_offset",
        "_isolation",
        "_leader_epoch",
        "_only_leader",
        "_topic",
        "index",
        "partition",
        "piece",
    )

    def __init__(
        self, topic: "UnchangedTopic", entry: Entry, piece: bytes, partition: Partition, requirements: FetchRequirements
    ) -> None:
        self._topic = topic
        self.index, self._leader_epoch, self._fetch_offset = entry[:3]
        self._isolation = requirements.isolation
        self._only_leader = requirements.only_leader
        self.piece = piece
        """The partition's entry in the request."""
        self.partition = partition

    @property
    def has_nothing(self) -> bool:
        """Whether the partition still has nothing for the consumer, not even an error."""
        offset, partition = self._fetch_offset, self.partition
        return partition.is_readable_at(offset, self._leader_epoch, self._only_leader) and partition.has_nothing_for(
            offset, self._isolation
        )

    def partition_changed(self) -> None:
        """The partition may have something for the consumer now."""
        self._topic.changed(self)


class UnchangedTopic:
    """The unchanged partitions of one topic."""

    __slots__ = ("_consumer", "answers", "partitions")

    def __init__(self, consumer: "UnchangedPartitions") -> None:
        self._consumer = consumer
        self.answers: dict[bytes, bytes] = {}
        """Entries of requests, and the entries of answers to them."""
        self.partitions: dict[int, UnchangedPartition] = {}
        """By their indexes."""

    def any_partition(self) -> Partition:
        """One of the partitions. There must be one."""
        return next(iter(self.partitions.values())).partition

    def add(
        self, entry: Entry, piece: bytes, partition: Partition, requirements: FetchRequirements, answer: bytes
    ) -> bool:
        """From now on ``answer`` is the answer to ``piece``, which is ``entry`` encoded. False: the memory budget does
        not allow it."""
        index = entry[0]
        before = self.partitions.get(index)
        if before is not None:
            self.remove(before)
        if not self._consumer.reserve():
            return False
        unchanged = self.partitions[index] = UnchangedPartition(self, entry, piece, partition, requirements)
        self.answers[piece] = answer
        partition.watch(unchanged)
        return True

    def changed(self, unchanged: UnchangedPartition) -> None:
        """``unchanged`` may be so no more. A request that waits is tried again only if it is not: the attempt looks at
        all partitions, and a change may concern each of them."""
        if unchanged.has_nothing:
            self.answers.pop(unchanged.piece, None)  # read it again: the answer has other offsets now
        else:
            self.remove(unchanged)
            self._consumer.partition_changed()

    def remove(self, unchanged: UnchangedPartition) -> None:
        """Forget a partition."""
        unchanged.partition.unwatch(unchanged)
        del self.partitions[unchanged.index]
        self.answers.pop(unchanged.piece, None)
        self._consumer.release()


class UnchangedPartitions:
    """The unchanged partitions of one connection, for requests of one version and isolation level. A fetch that waits
    for any of them to change waits in the purgatory under this object."""

    __slots__ = ("_is_closed", "_memory", "_most", "_purgatory", "_remembered", "_terms", "topics")

    def __init__(self, purgatory: Purgatory, memory: MemoryBudget) -> None:
        self._purgatory = purgatory
        self._memory = memory
        self._terms: tuple[int, int] | None = None
        self._most = 0
        self._remembered = 0
        self._is_closed = False
        self.topics: dict[bytes, UnchangedTopic] = {}
        """By their names or ids, encoded as in requests."""

    def __len__(self) -> int:
        return self._remembered

    def begin(self, version: int, isolation_level: int, partitions: int) -> bool:
        """Prepare for a request that names so many partitions. False: what is remembered is of no use to the request,
        and another request waits for it to change."""
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
        """The unchanged partitions of a topic, none at first."""
        known = self.topics.get(encoded)
        if known is None:
            known = self.topics[encoded] = UnchangedTopic(self)
        return known

    def partition_changed(self) -> None:
        """One of the partitions has changed: try the requests again that wait for that."""
        self._purgatory.check(self)

    def reserve(self) -> bool:
        """Take a partition off the memory budget. False if the connection is closed or nothing is left."""
        if self._is_closed or not self._memory.left:
            return False
        self._memory.left -= 1
        self._remembered += 1
        return True

    def release(self) -> None:
        """Give a partition back to the memory budget."""
        self._memory.left += 1
        self._remembered -= 1

    def close(self) -> None:
        """The connection is gone: forget all partitions, and remember no more."""
        self._is_closed = True
        self._forget()

    def _forget(self) -> None:
        for topic in self.topics.values():
            for unchanged in tuple(topic.partitions.values()):
                topic.remove(unchanged)
        self.topics.clear()
