"""The coordinator of `harness`, with requests about offsets and of administrators.

    home = OffsetsHome()
    assert home.commits(OffsetToCommit("orders", 0, 5)) == [NONE]
    assert home.offsets() == {("orders", 0): 5}

A list of answers is empty while nothing is decided: the records are under way.
"""

import struct

from broker.coordinators.group.requests import Commit, Protocol, TopicPartitionName
from broker.coordinators.result import ProducerIdAndEpoch
from protocol.records.group_metadata import decode_group_record, encode_group_key, encode_group_value
from tests.unit.broker.coordinators.group.harness import Coordinator, G

SHOP = ProducerIdAndEpoch(12, 0)
"""A producer of transactions."""


def subscription(*topics, version=0):
    """What a consumer tells its leader that it wants to read."""
    names = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + struct.pack(">i", -1)


def reads(*topics):
    """The protocols of a consumer of these topics."""
    return (Protocol("range", subscription(*topics)),)


class OffsetsHome(Coordinator):
    """One shard, whoever asks it."""

    def consumer(self, *topics, **about):
        """Somebody who reads these topics and is in nobody's way: it needs no id to begin with."""
        return self.member(**{"protocols": reads(*topics), "needs_known_id": False, **about})

    def settled(self, *topics, **about):
        """A consumer that is alone in its group, which is Stable."""
        consumer = self.consumer(*topics, **about)
        consumer.joins()
        consumer.brings({consumer: b"gets"})
        assert self.state(consumer.group_id) == "Stable"
        return consumer

    def stands(self, *records, producer_id=-1):
        """Records are in the log, whoever wrote them."""
        for record in records:
            value = None if record.value is None else encode_group_value(record.value, record.version)
            stored = encode_group_key(record.key), value
            self.writer.stands((*stored, producer_id))
            self.shard.replay(decode_group_record(*stored), producer_id=producer_id)

    def written(self, since=0):
        """The records that stand, but for the first so many."""
        return [decode_group_record(*stored) for stored in self.writer.log[since:]]

    def batches_under_way(self):
        """The records of each change that is not acknowledged yet."""
        return [[decode_group_record(*stored) for stored in written.stored] for written in self.writer.under_way]

    def fails(self, error):
        """Nothing of what is under way can be written."""
        while self.writer.under_way:
            self.writer.settle_one(error)

    def commits(self, *offsets, group_id=G, **given):
        """The errors of a commit."""
        answers = []
        request = Commit(group_id=group_id, offsets=offsets, **given)
        self.writer.append(self.shard.commit(request, answers.extend))
        return answers

    def fetch(self, *partitions, group_id=G, require_stable=False):
        """What is committed for these, or everything."""
        asked = [TopicPartitionName(*partition) for partition in partitions]
        return self.shard.fetch(group_id, asked or None, require_stable=require_stable)

    def offsets(self, group_id=G):
        """Everything that a group has committed."""
        return {(found.topic, found.partition): found.committed.offset for found in self.fetch(group_id=group_id)}

    def deletes_offsets(self, *partitions, group_id=G):
        """The error, and those of the partitions."""
        answers = []
        asked = [TopicPartitionName(*partition) for partition in partitions]
        self.writer.append(
            self.shard.delete_offsets(group_id, asked, lambda error, each: answers.append((error, list(each))))
        )
        return answers

    def deletes(self, group_id=G):
        """The error of a group's deletion."""
        answers = []
        self.writer.append(self.shard.delete(group_id, answers.append))
        return answers

    def expires(self):
        """Let go of what is over."""
        self.writes_all(self.shard.expire_offsets())

    def forgets(self, **topics):
        """Topics are deleted, given with their ids."""
        self.writes_all(self.shard.forget_topics(topics))

    def writes_all(self, pieces):
        """Write what comes in pieces."""
        for change in pieces:
            self.writer.append(change)


def as_member(client):
    """How a member commits."""
    return {"generation": client.generation, "member_id": client.member_id}
