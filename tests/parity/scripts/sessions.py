"""Fetch sessions (KIP-227): made, used, spoiled and left."""

from collections.abc import Sequence
from typing import Any

from protocol.messages.fetch import FetchRequest
from tests.parity.exchange import Exchange
from tests.support.batches import produced
from tests.support.requests import produce_request

Topic = FetchRequest.Topic
Forgotten = FetchRequest.ForgottenTopic
UNKNOWN = bytes.fromhex("00112233445566778899aabbccddeeff")
VERSIONS = (7, 11, 12, 13, 18)
"""Where something of a session, or of how it names its topics, begins or ends."""


def run(exchange: Exchange) -> None:
    for version in VERSIONS:
        conversation(exchange, version)
    for version in range(7, 19):
        Session(exchange, version, f"short-v{version}").life()
    mixed(exchange)


class Session:
    """Asks for partitions of one topic in one session."""

    def __init__(self, exchange: Exchange, version: int, topic: str, partitions: int = 3) -> None:
        self.exchange = exchange
        self.version = version
        self.topic = topic
        self.topic_id = exchange.create_topic(topic, partitions=partitions)
        self.id = 0

    def topics(
        self, offsets: Sequence[tuple[int, int]], topic: str = "", topic_id: bytes = b"", **fields: Any
    ) -> list[Topic]:
        partitions = [
            Topic.Partition(partition=index, fetch_offset=offset, partition_max_bytes=1000, **fields)
            for index, offset in offsets
        ]
        return (
            [Topic(topic=topic or self.topic, topic_id=topic_id or self.topic_id, partitions=partitions)]
            if partitions
            else []
        )

    def ask(
        self, step: str, epoch: int, offsets: Sequence[tuple[int, int]] = (), forget: Sequence[int] = (), **fields: Any
    ) -> Any:
        forgotten = [Forgotten(topic=self.topic, topic_id=self.topic_id, partitions=[*forget])] if forget else []
        request = FetchRequest(
            **{
                "max_wait_ms": 0,
                "min_bytes": 1,
                "session_id": self.id,
                "session_epoch": epoch,
                "topics": self.topics(offsets),
                "forgotten_topics_data": forgotten,
                **fields,
            }
        )
        return self.exchange.ask(f"{self.topic}: {step}", request, fields.get("version", self.version))

    def open(self, step: str, offsets: Sequence[tuple[int, int]], **fields: Any) -> None:
        self.id = 0
        answer = self.ask(step, 0, offsets, **fields)
        self.id = answer.session_id if answer is not None else 0

    def produce(self, partition: int = 0) -> None:
        count = self.produced = getattr(self, "produced", 0) + 1
        batch = produce_request(self.topic, produced(1), partition=partition)
        self.exchange.ask(f"{self.topic}: record {count}", batch, 12)

    def life(self) -> None:
        self.produce()
        self.open("a session is made", [(0, 0), (1, 0)])
        self.ask("nothing new", 1, [(0, 1)])
        self.produce()
        self.ask("something new", 2)
        self.ask("the same again, since the offset did not move", 3)
        self.ask("it is closed", -1)
        self.ask("it is gone", 4)


def conversation(exchange: Exchange, version: int) -> None:
    talk = Session(exchange, version, f"talk-v{version}")
    talk.produce()
    talk.ask("epoch 5 without a session", 5, [(0, 0)])
    talk.ask("epoch -1 without a session", -1, [(0, 0)])
    talk.ask("epoch -2 without a session", -2, [(0, 0)])
    for epoch in (1, 0, -1, -2, 0x7FFF_FFFF):
        talk.ask(f"an unknown session in epoch {epoch}", epoch, [(0, 0)], session_id=0x7ABC_DEF0)
        talk.ask(f"session -5 in epoch {epoch}", epoch, [(0, 0)], session_id=-5)
    talk.open("a session without partitions", [])
    talk.ask("nothing is added", 1)
    talk.open("a session of three partitions", [(2, 0), (0, 0), (1, 0)])
    talk.ask("nothing is changed", 1)
    talk.ask("an epoch too early", 1)
    talk.ask("an epoch too late", 9)
    talk.ask("epoch -2", -2)
    talk.ask("the right epoch after the wrong ones", 2)
    talk.ask("a new offset", 3, [(0, 1)])
    talk.produce(1)
    talk.produce(2)
    talk.ask("two partitions with data", 4)
    talk.ask("the one with data goes to the end of the order", 5, max_bytes=1)
    talk.ask("and the other comes now", 6, max_bytes=1)
    talk.ask("all are read", 7, [(0, 1), (1, 1), (2, 1)])
    talk.ask("a partition is forgotten", 8, forget=[1])
    talk.produce(1)
    talk.ask("nothing of what is forgotten", 9)
    talk.ask("it is added again", 10, [(1, 1)])
    talk.ask("one is forgotten and added at once", 11, [(2, 0)], forget=[2])
    talk.ask("a partition that is not there is forgotten", 12, forget=[9])
    talk.ask("an offset out of range", 13, [(0, 99)])
    talk.ask("the error comes again", 14)
    talk.ask("a partition that does not exist", 15, [(7, 0), (0, 1)])
    talk.ask("its error comes again", 16)
    talk.ask("a wrong leader epoch", 17, topics=talk.topics([(0, 1)], current_leader_epoch=3))
    talk.ask("an unknown topic", 18, topics=talk.topics([(0, 0)], "nope", UNKNOWN))
    talk.ask("the unknown topic again", 19)
    talk.ask("the same partition twice", 20, topics=[*talk.topics([(0, 0)]), *talk.topics([(0, 1)])])
    talk.ask("a full fetch in epoch 0 makes another session", 0, [(0, 0)])
    talk.ask("the old one is gone", 21)
    talk.open("one of one partition", [(0, 0)])
    talk.ask("a full fetch of another partition closes it", -1, [(1, 0)])
    talk.ask("it was closed", 1)
    talk.open("one of two partitions", [(0, 1), (1, 2)])
    talk.ask("the first is forgotten", 1, forget=[0])
    talk.ask("the last is forgotten too", 2, forget=[1])
    talk.ask("nothing is left of it", 3)
    talk.open("one with an error", [(0, 99), (9, 0)])
    talk.ask("the errors again", 1)
    talk.open("the same partition twice in a new one", [(0, 0), (0, 1)])
    talk.ask("which of them counts", 1)


def mixed(exchange: Exchange) -> None:
    names = Session(exchange, 12, "made-with-names")
    names.produce()
    names.open("a session", [(0, 0)])
    names.version = 13
    names.ask("by ids", 1, [(0, 0)])
    names.ask("by ids, with no topics", 1)
    names.version = 12
    names.ask("by names again", 1, [(0, 0)])
    ids = Session(exchange, 13, "made-with-ids")
    ids.produce()
    ids.open("a session", [(0, 0)])
    ids.version = 12
    ids.ask("by names", 1, [(0, 0)])
    ids.ask("by names, with no topics", 1)
    ids.version = 13
    ids.ask("by ids again", 1, [(0, 0)])
    gone = Session(exchange, 13, "read-from-another-connection")
    gone.produce()
    gone.open("a session", [(0, 0)])
    exchange.hang_up()
    gone.ask("on another connection", 1, [(0, 0)])
