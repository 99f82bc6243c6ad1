"""SharePartitions: the share partitions of all groups in the partitions that this node leads, and their fetches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.coordinators.share.persister import SharePartitionKey, SharePersister
from broker.replication.isolation import FetchIsolation
from broker.replication.offsets import find_offset
from broker.replication.partition import Partition
from broker.request.faults import (
    Fault,
    GroupIdNotFound,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownTopicOrPartition,
)
from broker.runtime.clock import Clock
from broker.runtime.purgatory import Purgatory
from broker.runtime.timing_wheel import TimingWheel
from broker.runtime.worker_thread import WorkerThread
from broker.share.group_configs import ShareGroupConfigs
from broker.share.requests import Acknowledgement
from broker.share.sessions import Member, ShareSession, TopicIdPartition
from broker.share.share_fetch import DelayedShareFetch, ShareFetch, ShareFetchAnswer, ShareFetchPartition
from broker.share.share_partition import Phase, SharePartition
from broker.share.stats import ShareGroupStats
from storage.errors import StorageError
from storage.read_ahead import ReadAhead
from storage.sentinels import NO_OFFSET

if TYPE_CHECKING:
    from broker.share.dead_letters import DeadLetters

log = logging.getLogger(__name__)

_FENCING: Final = (NotLeaderOrFollower, GroupIdNotFound, UnknownTopicOrPartition)
"""What the persister or the log says when this node, or the group, is not what it was."""

Acknowledged = Callable[[Mapping[TopicIdPartition, Exception | None]], None]
"""Called with what became of the acknowledgements of each partition."""


class Hosted:
    """A share partition and the partition that it is of. A `broker.replication.partition.PartitionWatcher`."""

    __slots__ = ("_owner", "partition", "share")

    def __init__(self, owner: SharePartitions, share: SharePartition, partition: Partition) -> None:
        self._owner = owner
        self.share = share
        self.partition = partition
        partition.watch(self)

    def partition_changed(self) -> None:
        """There are new records, or the partition is led by another node, or gone."""
        if not self.partition.is_leader:
            self._owner.remove(self.share.key)
        else:
            self._owner.may_be_acquired(self.share)


class SharePartitions:
    """The share partitions of this broker. A `broker.share.share_partition.SharePartitionOwner`."""

    def __init__(
        self,
        find: Callable[[str, int], Partition],
        persister: SharePersister,
        configs: ShareGroupConfigs,
        *,
        clock: Clock,
        wheel: TimingWheel,
        purgatory: Purgatory,
        read_ahead: WorkerThread,
        dead_letters: DeadLetters,
        stats: ShareGroupStats,
    ) -> None:
        """``find``: gives a partition by topic and index, or raises the fault that clients are told; ``purgatory``:
        where share fetches wait; ``read_ahead``: the thread that waits for the disk."""
        self._find = find
        self._persister = persister
        self._configs = configs
        self._clock = clock
        self._wheel = wheel
        self._purgatory = purgatory
        self._read_ahead = read_ahead
        self._dead_letters = dead_letters
        self._hosted: dict[SharePartitionKey, Hosted] = {}
        self.stats = stats

    def hosted(self) -> Collection[Hosted]:
        """The share partitions that are in memory."""
        return self._hosted.values()

    def period_is_over(self) -> None:
        """Forget times and sizes that were recorded before the last period."""
        self.stats.rotate()
        for hosted in self._hosted.values():
            hosted.share.window.batch_sizes.rotate()

    # Fetching ---------------------------------------------------------------------------------------------------------

    def fetch(
        self,
        fetch: ShareFetch,
        member: Member,
        named: Sequence[tuple[TopicIdPartition, str]],
        then: Callable[[list[ShareFetchAnswer]], None],
    ) -> None:
        """Call ``then`` with what ``member`` acquires of the partitions ``named``: now if that is enough or cannot
        become more, else when there is enough or the time is up."""
        if not named or fetch.want.max_records == 0 or fetch.max_bytes == 0:
            then([])
            return
        keys: list[Hashable] = [member]
        for topic_id_partition, topic in named:
            key = SharePartitionKey(member.group_id, *topic_id_partition)
            try:
                hosted = self._host(key, topic)
            except (Fault, StorageError) as error:
                fetch.failed[topic_id_partition] = error.with_traceback(None)
                continue
            fetch.partitions.append(ShareFetchPartition(topic_id_partition, hosted.share, hosted.partition))
            keys.append(key)
            if hosted.share.phase is Phase.EMPTY:
                self._initialize(hosted, fetch, topic_id_partition)
        fetch.asked = len(named)
        self.stats.fetched(topic for _, topic in named)
        self.stats.failed_fetches.update({topic for key, topic in named if key in fetch.failed})
        if len(fetch.failed) == len(named):
            then(fetch.acquire(()))
            return
        of_group = self.stats.of_group(member.group_id)
        waiting = DelayedShareFetch(fetch, then, stats=of_group, now_ms=self._clock.monotonic_ms)
        ahead = fetch.missing_in_memory()
        if ahead:
            self._when_in_memory(ahead, lambda: self._purgatory.watch(waiting, keys, fetch.max_wait_ms))
        else:
            self._purgatory.watch(waiting, keys, fetch.max_wait_ms)

    def _when_in_memory(self, ahead: Sequence[ReadAhead], then: Callable[[], object]) -> None:
        """Call ``then`` when ``ahead`` has been read into memory. Also if that fails: the next read finds the error."""

        def done(_: None) -> None:
            for one in ahead:
                one.done()
            then()

        def failed(_: Exception) -> None:
            then()

        self._read_ahead.submit(lambda: ReadAhead.perform_all(ahead), done, failed)

    def _host(self, key: SharePartitionKey, topic: str) -> Hosted:
        hosted = self._hosted.get(key)
        if hosted is not None:
            return hosted
        partition = self._find(topic, key.partition)
        if partition.topic_id != key.topic_id:
            raise UnknownTopicOrPartition(f"{topic} has not the id {key.topic_id.hex()} any more")
        partition.check_leadership()
        share = SharePartition(
            key,
            partition.leader_epoch,
            topic=topic,
            persister=self._persister,
            wheel=self._wheel,
            now_ms=self._clock.monotonic_ms,
            terms=partial(self._configs.terms, key.group_id),
            owner=self,
            bury=partial(self._dead_letters.bury, key.group_id, partition),
        )
        hosted = self._hosted[key] = Hosted(self, share, partition)
        return hosted

    def _initialize(self, hosted: Hosted, fetch: ShareFetch, topic_id_partition: TopicIdPartition) -> None:
        began_ms = self._clock.monotonic_ms()

        def then(error: Exception | None) -> None:
            self.stats.load_times.record(self._clock.monotonic_ms() - began_ms)
            if error is not None:
                log.info("%s cannot be read: %s", hosted.share, error)
                fetch.failed[topic_id_partition] = error
                if self._hosted.get(hosted.share.key) is hosted:  # not one that was hosted since
                    self.remove(hosted.share.key)
            self._purgatory.check(hosted.share.key)

        hosted.share.initialize(partial(self._find_start, hosted), then)

    def _find_start(self, hosted: Hosted) -> int:
        timestamp = self._configs.start_timestamp(hosted.share.key.group_id, self._clock.now_ms())
        hosted.partition.check_leadership(hosted.share.leader_epoch)
        found = find_offset(hosted.partition, timestamp, FetchIsolation.HIGH_WATERMARK).offset
        if found == NO_OFFSET:
            raise OffsetNotAvailable(f"{hosted.partition.topic_partition} has no record since {timestamp}")
        return found

    # Acknowledging ----------------------------------------------------------------------------------------------------

    def acknowledge(
        self, member: Member, said: Mapping[TopicIdPartition, Sequence[Acknowledgement]], then: Acknowledged
    ) -> None:
        """Take over what a member says of its records in several partitions; ``then`` gets each partition's error."""
        results: dict[TopicIdPartition, Exception | None] = {}

        def done(key: TopicIdPartition, share: SharePartition | None, error: Exception | None) -> None:
            results[key] = error
            if error is None:
                self.stats.acknowledged(said[key])
            elif share is not None:
                hosted = hosted_here[key]
                self.stats.failed_acknowledges.update([hosted.partition.topic_partition.topic] if hosted else ())
                self.has_failed(share, error)
            if len(results) == len(said):
                then(results)

        hosted_here = {key: self._hosted.get(SharePartitionKey(member.group_id, *key)) for key in said}
        self.stats.acknowledges.update({one.partition.topic_partition.topic for one in hosted_here.values() if one})
        for key, acknowledgements in said.items():
            hosted = hosted_here[key]
            if hosted is None or not hosted.share.is_active:
                done(key, None, UnknownTopicOrPartition("nothing of the partition was fetched by the group here"))
                continue
            hosted.share.acknowledge(member.member_id, acknowledgements, partial(done, key, hosted.share))
            self._purgatory.check(hosted.share.key)

    def release(self, session: ShareSession) -> None:
        """A session has ended: take from its member all that it holds."""
        member = session.member
        for key in session.partitions:
            hosted = self._hosted.get(SharePartitionKey(member.group_id, *key))
            if hosted is not None and hosted.share.is_active:
                hosted.share.release(member.member_id, partial(self._released, hosted.share))
        self._purgatory.check(member)

    def _released(self, share: SharePartition, error: Exception | None) -> None:
        if error is not None:
            log.warning("%s: the end of a session is not persisted: %s", share, error)

    # What happens to share partitions ---------------------------------------------------------------------------------

    def remove(self, key: SharePartitionKey) -> None:
        """Forget a share partition; its state stays where the persister keeps it."""
        hosted = self._hosted.pop(key, None)
        if hosted is not None:
            hosted.partition.unwatch(hosted)
            hosted.share.fence()
            self._purgatory.check(key)

    def remove_group(self, group_id: str) -> None:
        """No member of the group has a session here any more."""
        for key in [key for key in self._hosted if key.group_id == group_id]:
            self.remove(key)
        self.stats.of_groups.pop(group_id, None)

    def may_be_acquired(self, share_partition: SharePartition) -> None:
        """Try fetches again that wait for records of a share partition."""
        self._purgatory.check(share_partition.key)

    def has_failed(self, share_partition: SharePartition, error: Exception) -> None:
        """Forget a share partition whose state another node, or another life of the group, has taken over."""
        hosted = self._hosted.get(share_partition.key)
        if hosted is not None and hosted.share is share_partition and isinstance(error, _FENCING):
            log.info("%s is fenced: %s", share_partition, error)
            self.remove(share_partition.key)
