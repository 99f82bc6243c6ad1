"""The clients of the ten-minute run: a shop's orders, read by groups that keep up and by a group that lags."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonsTopicPartition

from config.resources import ConfigResource
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.share_fetch import ShareAcknowledgeRequest
from tests.support.raw_client import RawClient

ONE_MB: Final = {"retention.bytes": "1048576", "segment.bytes": "1048576"}
TOPICS: Final = {
    "orders": NewTopic("orders", 6, 1, config={**ONE_MB, "ottla.archive.group": "archive.orders"}),
    "payments": NewTopic("payments", 3, 1),
    "audit": NewTopic("audit", 1, 1, config={"flush.messages": "1", "max.message.bytes": "20000"}),
    "dlq.packing": NewTopic("dlq.packing", 1, 1, config={"errors.deadletterqueue.group.enable": "true"}),
    "prices": NewTopic("prices", 1, 1, config={"cleanup.policy": "compact", "segment.ms": "15000"}),
}

ORDERS_PER_S: Final = 150
PAYMENTS_PER_S: Final = 60
SLOW_PER_S: Final = 40
"""Records a second that the group `reports` consumes before it gets faster."""
PACKING: Final = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": "15000",
    "errors.deadletterqueue.topic.name": "dlq.packing",
}
"""Configs of the share group."""
PERIOD_S: Final = 120.0
"""The period at which the rate of orders rises and falls."""

MIXED: Final = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000, "auto.commit.interval.ms": 1000}


class Load:
    """The clients, in threads of their own, from `start` to `stop`. They wait while the broker is away."""

    def __init__(self, bootstrap: str, duration_s: float) -> None:
        self._bootstrap = bootstrap
        self._duration_s = duration_s
        self._began_s = 0.0
        self._stop = threading.Event()
        self._doings: tuple[Callable[[], None], ...] = (
            self._take_orders,
            self._take_payments,
            self._write_audit,
            self._quote_prices,
            self._settle_payments,
            self._bill,
            self._bill_now_and_then,
            self._ship,
            self._pack,
            self._pack_and_pause,
            self._report,
            self._archive,
            self._tail,
            self._import,
            self._err,
        )
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Create the topics, and start the clients."""
        admin = self._admin()
        for created in admin.create_topics(list(TOPICS.values())).values():
            created.result(30)
        self._configure_share_group()
        self._began_s = time.monotonic()
        self._threads = [threading.Thread(target=doing, name=doing.__name__) for doing in self._doings]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop all clients; consumers leave their groups."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    # Producers

    def _take_orders(self) -> None:
        self._produce("orders", ORDERS_PER_S, b"o" * 700, {"enable.idempotence": True, "linger.ms": 20})

    def _take_payments(self) -> None:
        self._produce("payments", PAYMENTS_PER_S, b"p" * 250, {"compression.type": "zstd", "linger.ms": 5})

    def _write_audit(self) -> None:
        self._produce("audit", 4, b"a" * 120, {})

    def _quote_prices(self) -> None:
        """Prices of a hundred articles, of which the topic keeps the last of each."""
        producer = Producer(self._address)
        for number, _ in enumerate(self._ticks(1.0)):
            for article in range(20):
                producer.produce("prices", b"p" * 200, key=b"article-%d" % ((20 * number + article) % 100))
            producer.poll(0)
        producer.flush(10)

    def _settle_payments(self) -> None:
        """Transactions of a few seconds, one in five aborted; the client begins anew when it is fenced."""
        while not self._stop.is_set():
            producer = Producer({**self._address, "transactional.id": "settlement", "transaction.timeout.ms": 10_000})
            with contextlib.suppress(KafkaException):
                producer.init_transactions(30)
                for number, _ in enumerate(self._ticks()):
                    producer.begin_transaction()
                    for _ in range(3 + number % 4):
                        producer.produce("payments", b"s" * 250)
                        self._stop.wait(1)
                    if number % 5 == 4:
                        producer.abort_transaction(10)
                    else:
                        producer.commit_transaction(10)

    def _produce(self, topic: str, per_s: float, value: bytes, options: dict[str, Any]) -> None:
        producer = Producer({**self._address, **options})
        sent = 0.0
        before_s = 0.0
        for elapsed_s in self._ticks(0.1):
            sent += (elapsed_s - before_s) * per_s * (1 + 0.7 * math.sin(elapsed_s * 2 * math.pi / PERIOD_S))
            before_s = elapsed_s
            while sent >= 1:
                sent -= 1
                with contextlib.suppress(BufferError):
                    producer.produce(topic, value, key=str(time.monotonic_ns() % 997))
            producer.poll(0)
        producer.flush(10)

    # Groups

    def _bill(self) -> None:
        self._consume("billing", ["orders"], self._ticks())

    def _bill_now_and_then(self) -> None:
        """A second member of a group joins and leaves, as in a deployment."""
        while not self._stop.is_set():
            self._consume("billing", ["orders"], self._ticks(most_s=60))
            self._stop.wait(30)

    def _ship(self) -> None:
        self._consume("shipping", ["orders", "payments"], self._ticks())

    def _pack(self) -> None:
        """A member of a share group, which has some records delivered again, and gives a few up."""
        self._share(self._ticks())

    def _pack_and_pause(self) -> None:
        """Another member, which once a minute takes longer than the lock of its records lasts."""
        paused_s = 0.0

        def ticks() -> Iterator[float]:
            nonlocal paused_s
            for elapsed_s in self._ticks():
                if elapsed_s - paused_s > 60:
                    self._stop.wait(20)
                    paused_s = elapsed_s
                yield elapsed_s

        self._share(ticks())

    def _share(self, ticks: Iterator[float]) -> None:
        options = {"group.id": "packing", "share.acknowledgement.mode": "explicit", "log_level": 0}
        consumer = ShareConsumer({"bootstrap.servers": self._bootstrap, **options})
        consumer.subscribe(["orders"])
        held: list[Any] = []
        for _ in ticks:
            with contextlib.suppress(KafkaException):
                for message in held:
                    number = message.offset() or 0
                    is_rejected, is_released = number % 101 == 0, number % 23 == 0
                    again = AcknowledgeType.RELEASE if is_released else AcknowledgeType.ACCEPT
                    consumer.acknowledge(message, AcknowledgeType.REJECT if is_rejected else again)
                held = []
                held = [message for message in consumer.poll(0.2) if message.error() is None]
        consumer.close()

    def _report(self) -> None:
        """A consumer that is too slow for the first six tenths of the run, then fast enough to catch up."""
        consumer = self._member("reports", ["orders"])
        for elapsed_s in self._ticks(0.1):
            is_slow = elapsed_s < 0.6 * self._duration_s
            consumer.consume(round(SLOW_PER_S * 0.1) if is_slow else 1000, timeout=0.05)
        consumer.close()

    def _archive(self) -> None:
        """An archiver, as the broker sees it: it commits so seldom that retention has to wait for it."""
        archiver = Consumer({**self._address, "group.id": "archive.orders", "enable.auto.commit": False})
        places = [TopicPartition("orders", partition) for partition in range(6)]
        for _ in self._ticks(0.4 * self._duration_s):
            with contextlib.suppress(KafkaException):
                ends = [archiver.get_watermark_offsets(place, timeout=5)[1] for place in places]
                archived = [TopicPartition("orders", number, end) for number, end in enumerate(ends)]
                archiver.commit(offsets=archived, asynchronous=False)
        archiver.close()

    def _consume(self, group: str, topics: list[str], ticks: Iterator[float]) -> None:
        consumer = self._member(group, topics)
        for _ in ticks:
            consumer.consume(1000, timeout=0.2)
        consumer.close()

    def _member(self, group: str, topics: list[str]) -> Consumer:
        consumer = Consumer({**self._address, **MIXED, "group.id": group, "auto.offset.reset": "earliest"})
        consumer.subscribe(topics)
        return consumer

    # Others

    def _tail(self) -> None:
        """A consumer with another client library, which reads a partition without a group."""
        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, auto_offset_reset="latest", group_id=None)
        consumer.assign([PythonsTopicPartition("payments", partition) for partition in range(3)])
        for _ in self._ticks():
            consumer.poll(timeout_ms=500)
        consumer.close()

    def _import(self) -> None:
        """Create and delete topics, and delete old records."""
        admin = self._admin()
        for number, _ in enumerate(self._ticks(45)):
            name = f"import-{number}"
            with contextlib.suppress(KafkaException):
                admin.create_topics([NewTopic(name, 2, 1)])[name].result(10)
                producer = Producer(self._address)  # a new one: it would ask for ever after topics that are gone
                for _ in range(500):
                    producer.produce(name, b"i" * 300)
                producer.flush(5)
                if number >= 2:
                    old = f"import-{number - 2}"
                    admin.delete_topics([old])[old].result(10)
                end = Consumer({**self._address, "group.id": "janitor"})
                low, high = end.get_watermark_offsets(TopicPartition("payments", 0), timeout=5)
                end.close()
                where = TopicPartition("payments", 0, (low + high) // 2)
                admin.delete_records([where])[where].result(10)

    def _err(self) -> None:
        """Send wrong requests: too large records, and offsets, topics and share sessions that do not exist."""
        producer = Producer({**self._address, "message.max.bytes": 1_000_000, "linger.ms": 0})
        consumer = Consumer({**self._address, "group.id": "lost", "auto.offset.reset": "latest"})
        for number, _ in enumerate(self._ticks(2)):
            producer.produce("audit", b"x" * 30_000)
            producer.poll(0)
            with contextlib.suppress(KafkaException):
                consumer.assign([TopicPartition("payments", 0, 10**9 + number)])
                consumer.poll(0.2)
                consumer.get_watermark_offsets(TopicPartition("no-such-topic", 0), timeout=1)
            with contextlib.suppress(OSError), RawClient(self._bootstrap) as client:
                ended = ShareAcknowledgeRequest(group_id="packing", member_id="gone", share_session_epoch=7, topics=[])
                client.ask(ended, 1)
        consumer.close()

    def _configure_share_group(self) -> None:
        of_request = IncrementalAlterConfigsRequest.Resource
        configs = [of_request.Config(name=name, config_operation=0, value=value) for name, value in PACKING.items()]
        resource = of_request(resource_type=ConfigResource.GROUP, resource_name="packing", configs=configs)
        with RawClient(self._bootstrap) as client:
            client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)

    @property
    def _address(self) -> dict[str, Any]:
        # What a broker that restarts makes the library say is no news here.
        return {"bootstrap.servers": self._bootstrap, "log_level": 0, "allow.auto.create.topics": False}

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})

    def _ticks(self, every_s: float = 0.0, *, most_s: float = math.inf) -> Iterator[float]:
        """How long the run has lasted, every ``every_s`` seconds, until it is over."""
        first = time.monotonic()
        while not self._stop.wait(every_s) and time.monotonic() - first < most_s:
            yield time.monotonic() - self._began_s
