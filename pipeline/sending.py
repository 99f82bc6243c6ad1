"""Producing records to any Kafka unchanged: partition, timestamp, headers, and null apart from empty."""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from pipeline.errors import PipelineError

_MICROSECONDS: Final = 1000
_POLL_S: Final = 0.1
_SETTINGS: Final = {
    # Nothing twice and nothing out of order for as long as this process lives.
    "enable.idempotence": True,
    "acks": "all",
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1 << 20,
    # What the broker does not want it refuses itself, with its own limit.
    "message.max.bytes": 1_000_000_000,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 256 << 10,
    "delivery.timeout.ms": 120_000,
    "client.id": "ottla-pipeline",
    # What it would write to stderr comes as an error, too.
    "log_level": 0,
}

OnDelivered = Callable[[str, int, int], None]
"""Called with topic, partition and the new offset of each record, in the order of a partition's records."""


class NotSent(PipelineError):
    """The Kafka that records are sent to refused a record, or did not answer."""


def _ignore(topic: str, partition: int, offset: int) -> None:
    pass


class Sender:
    """Sends rows. All methods raise NotSent after a record could not be delivered, or the error that `on_delivered` has
    raised. It may be pickled: the copy connects anew."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str] | None = None) -> None:
        """``properties`` are options of librdkafka, for a Kafka that needs more than an address."""
        self._bootstrap = bootstrap
        self._properties = dict(properties or {})
        self._failure: PipelineError | None = None

    def __reduce__(self) -> tuple[type["Sender"], tuple[str, dict[str, str]]]:
        return type(self), (self._bootstrap, self._properties)

    @cached_property
    def _producer(self) -> Any:
        return Producer({**_SETTINGS, "bootstrap.servers": self._bootstrap, **self._properties})

    def send(
        self, topic: str, partition: int, rows: pa.Table | pa.RecordBatch, on_delivered: OnDelivered = _ignore
    ) -> None:
        """Send rows with the columns of `pipeline.schema.COLUMNS` to a partition. They are delivered later."""
        keys, values, headers = (rows.column(name).to_pylist() for name in ("key", "value", "headers"))
        times = rows.column("timestamp").cast(pa.int64()).to_pylist()
        produce, delivered = self._producer.produce, partial(self._delivered, on_delivered)
        for key, value, time_us, pairs in zip(keys, values, times, headers, strict=True):
            named = [(pair["key"], pair["value"]) for pair in pairs or ()]
            while True:
                try:
                    produce(
                        topic, value, key, partition, delivered, timestamp=time_us // _MICROSECONDS, headers=named
                    )  # fmt: skip
                    break
                except BufferError:
                    self._producer.poll(_POLL_S)
                    self._check()
                except KafkaException as error:
                    raise self._refused(error.args[0], topic, partition) from error
        self._producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Wait until all sent rows are delivered."""
        while self._producer.flush(_POLL_S):
            self._check()
        self._check()

    def give_up(self) -> None:
        """Drop the rows that are not delivered yet."""
        self._producer.purge()
        self._producer.poll(0)

    def _delivered(self, on_delivered: OnDelivered, error: KafkaError | None, message: Any) -> None:
        if self._failure is not None:
            return
        if error is not None:
            self._failure = self._refused(error, message.topic(), message.partition())
            return
        try:
            on_delivered(message.topic(), message.partition(), message.offset())
        except PipelineError as failure:
            self._failure = failure

    def _check(self) -> None:
        if self._failure is not None:
            self.give_up()
            raise self._failure

    def _refused(self, error: KafkaError, topic: str, partition: int) -> NotSent:
        return NotSent(f"{self._bootstrap} did not take a record of {topic}-{partition}: {error.name()}, {error.str()}")
