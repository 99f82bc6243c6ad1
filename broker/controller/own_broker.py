"""What this node's own registration, failed directories and stop change of partitions.

A partition that no other registered broker has a replica of is this node's alone: nobody took over while it was away.
The rules for such a partition are simpler than Kafka's, and keep its leader epoch over a clean stop.

All other partitions go by Kafka's rules for a broker that comes and goes (`broker.controller.broker_changes`). That
module is imported for such partitions only: most clusters have one broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from broker.controller.cluster_view import ClusterView
from broker.controller.directories import is_online
from broker.metadata.image.records import Record
from broker.metadata.image.topics import PartitionImage, TopicImage
from protocol.records.cluster_metadata import NO_LEADER, PartitionChangeRecord
from storage.topic_partition import TopicPartition


class OwnBroker:
    """Plans the changes of one image for the broker of this process."""

    def __init__(
        self, view: ClusterView, node_id: int, *, directories: Collection[bytes], others: Collection[int]
    ) -> None:
        """
        Args:
            view: the cluster.
            node_id: the broker of this process.
            directories: the ids of its log directories that are online.
            others: the registered brokers that can reach this controller.
        """
        self._view = view
        self._node_id = node_id
        self._directories = directories
        self._others = others

    def last_run_ended(self, *, was_clean: bool) -> list[Record]:
        """The changes of shared partitions that were not written when the last run of this node stopped."""
        shared = {
            (topic.topic_id, partition.index)
            for topic, partition in self._view.partitions()
            if self._is_shared(partition)
        }
        if not shared or self._view.broker(self._node_id) is None:
            return []
        from broker.controller.broker_changes import leave, leave_uncleanly

        changes = leave if was_clean or not self._view.has_elr else leave_uncleanly
        return [
            record
            for record in changes(self._view, self._node_id)
            if isinstance(record, PartitionChangeRecord) and (bytes(record.topic_id), record.partition_id) in shared
        ]

    def take_over(self, *, is_new_epoch: bool, found: Mapping[TopicPartition, bytes]) -> tuple[list[Record], int]:
        """The changes of the partitions that this node leads once it is registered, and how many are offline.

        Args:
            is_new_epoch: every partition of this node alone gets a new leader epoch.
            found: the log directory in which each log was found.
        """
        changes: list[Record] = []
        offline = 0
        for topic, partition in self._view.partitions():
            where = found.get(TopicPartition(topic.name, partition.index))
            is_usable = where is not None or self._is_online(partition)
            offline += not is_usable
            change: Record | None
            if self._is_shared(partition):
                change = self._share(topic, partition, where) if is_usable else self._give_up(topic, partition)
            elif is_usable:
                change = self._lead(topic, partition, is_new_epoch=is_new_epoch, where=where)
            else:
                change = self._leave_leaderless(topic, partition)
            if change is not None:
                changes.append(change)
        return changes, offline

    def directory_failed(self, directory: bytes | None, partitions: Collection[TopicPartition]) -> Iterator[Record]:
        """The changes of the partitions in a directory that has failed, by the directory's id or by their names.

        A log may be left of a partition whose replica is elsewhere by now: that changes nothing.
        """
        for topic, partition in self._view.partitions():
            if self._node_id not in partition.replicas:
                continue
            if (directory is not None and partition.directory_of(self._node_id) == directory) or TopicPartition(
                topic.name, partition.index
            ) in partitions:
                give_up = self._give_up if self._is_shared(partition) else self._leave_leaderless
                change = give_up(topic, partition)
                if change is not None:
                    yield change

    def _is_shared(self, partition: PartitionImage) -> bool:
        return self._node_id in partition.replicas and any(broker in self._others for broker in partition.replicas)

    def _is_online(self, partition: PartitionImage) -> bool:
        node_id = self._node_id
        return node_id not in partition.replicas or is_online(partition.directory_of(node_id), self._directories)

    def _is_elsewhere(self, partition: PartitionImage, where: bytes) -> bool:
        """Whether the metadata has another log directory than ``where`` for this node's replica, for example since the
        node was killed while the replica was moved."""
        known = partition.directory_of(self._node_id)
        return not self._is_online(partition) or (known in self._directories and known != where)

    # Partitions with replicas on other brokers

    def _share(self, topic: TopicImage, partition: PartitionImage, where: bytes | None) -> Record | None:
        """The record that makes this node, which is active now, lead where nobody does."""
        from broker.controller.broker_changes import election_of
        from broker.controller.partition_change import Wanted, plan_change

        directories = {self._node_id: where} if where is not None and self._is_elsewhere(partition, where) else {}
        wanted = Wanted(directories=directories, election=election_of(self._view, topic))
        return plan_change(self._view, topic, partition, wanted)

    def _give_up(self, topic: TopicImage, partition: PartitionImage) -> Record | None:
        """The record with which this node neither leads nor is in sync."""
        from broker.controller.broker_changes import election_of
        from broker.controller.partition_change import Wanted, plan_change

        view = self._view.with_leaving(self._node_id)
        isr = [broker for broker in partition.isr if broker != self._node_id]
        return plan_change(view, topic, partition, Wanted(isr=isr, election=election_of(view, topic)))

    # Partitions of this node alone

    def _lead(
        self, topic: TopicImage, partition: PartitionImage, *, is_new_epoch: bool, where: bytes | None
    ) -> Record | None:
        """The record that makes this node the only leader of ``partition``; None if it is, or has no replica.

        ``where`` is the log directory in which the partition was found, if that is known.
        """
        node_id = self._node_id
        if node_id not in partition.replicas:
            return None
        has_moved = not self._is_online(partition) or (where is not None and self._is_elsewhere(partition, where))
        if partition.leader == node_id and partition.isr == (node_id,) and not is_new_epoch and not has_moved:
            return None
        return PartitionChangeRecord(
            partition_id=partition.index,
            topic_id=topic.topic_id,
            leader=node_id,
            isr=None if partition.isr == (node_id,) else [node_id],
            directories=[
                where if replica == node_id else partition.directory_of(replica) for replica in partition.replicas
            ]
            if has_moved and where is not None
            else None,
            leader_recovery_state=-1 if partition.leader_recovery_state == 0 else 0,
            eligible_leader_replicas=[] if partition.eligible_leader_replicas else None,
            last_known_elr=[] if partition.last_known_elr else None,
        )

    def _leave_leaderless(self, topic: TopicImage, partition: PartitionImage) -> Record | None:
        """The record that makes ``partition`` leaderless, as in Kafka's controller; None if it has no leader.

        Without eligible leader replicas (KIP-966) the last replica in sync stays in sync.
        """
        if partition.leader == NO_LEADER:
            return None
        has_elr = self._view.has_elr
        return PartitionChangeRecord(
            partition_id=partition.index,
            topic_id=topic.topic_id,
            leader=NO_LEADER,
            isr=[] if has_elr else None,
            eligible_leader_replicas=[self._node_id] if has_elr else None,
            last_known_elr=[self._node_id] if has_elr else None,
        )
