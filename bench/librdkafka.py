"""librdkafka called by ctypes, at the speed of its own C programs; the library comes with confluent-kafka.

confluent-kafka makes a Python object of every record, which at these rates would take most of the measured time. Here
10,000 records are produced by one call, and each record is consumed by one short call.
"""

from __future__ import annotations

import ctypes
import random
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from bench.load import LoadFailed

BATCH: Final = 10_000
"""Records that are produced by one call."""
FLUSH_MS: Final = 60_000
TRANSACTION_MS: Final = 60_000
"""How long a call of a transactional producer may take."""
ANY_PARTITION: Final = -1
FROM_THE_BEGINNING: Final = 0

FAST_CONSUMER: Final = {
    # At its defaults the consumer stalls on its own queue limits at these rates, whatever the broker.
    "queued.min.messages": "1000000",
    "queued.max.messages.kbytes": "1000000",
    "fetch.queue.backoff.ms": "1",
    # As Kafka's own consumer does: what was read is verified.
    "check.crcs": "true",
}

_PRODUCER: Final = 0
_CONSUMER: Final = 1


class _Message(ctypes.Structure):
    """librdkafka's rd_kafka_message_t."""

    _fields_ = [
        ("error", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    ]


class _Library:
    """The functions of librdkafka that are used, with their types."""

    def __init__(self) -> None:
        import confluent_kafka

        package = Path(confluent_kafka.__file__).parent
        beside = sorted((package.parent / "confluent_kafka.libs").glob("librdkafka*"))
        inside = sorted((package / ".dylibs").glob("librdkafka*"))
        if not (found := [*beside, *inside]):
            raise LoadFailed(f"there is no librdkafka beside {package}: install confluent-kafka as a wheel")
        self._waiting = ctypes.CDLL(str(found[0]))
        # What returns at once keeps the interpreter's lock.
        self._quick = ctypes.PyDLL(str(found[0]))
        handle, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        messages = ctypes.POINTER(_Message)
        self.conf_new = self._of("rd_kafka_conf_new", handle)
        self.conf_set = self._of("rd_kafka_conf_set", number, handle, text, text, text, ctypes.c_size_t)
        self.set_delivery_callback = self._of("rd_kafka_conf_set_dr_msg_cb", None, handle, handle)
        self.no_effect = ctypes.cast(self._waiting.rd_kafka_type, handle)
        """A function for a callback that does nothing, without Python: it returns a field of its first argument."""
        self.new = self._of("rd_kafka_new", handle, number, handle, text, ctypes.c_size_t)
        self.destroy = self._of("rd_kafka_destroy", None, handle)
        self.topic_new = self._of("rd_kafka_topic_new", handle, handle, text, handle)
        self.topic_destroy = self._of("rd_kafka_topic_destroy", None, handle)
        self.produce_batch = self._of(
            "rd_kafka_produce_batch", number, handle, ctypes.c_int32, number, messages, number
        )
        self.poll = self._of("rd_kafka_poll", number, handle, number)
        self.flush = self._of("rd_kafka_flush", number, handle, number)
        self.init_transactions = self._of("rd_kafka_init_transactions", handle, handle, number)
        self.begin_transaction = self._of("rd_kafka_begin_transaction", handle, handle)
        self.commit_transaction = self._of("rd_kafka_commit_transaction", handle, handle, number)
        self.error_string = self._of("rd_kafka_error_string", text, handle)
        self.error_destroy = self._of("rd_kafka_error_destroy", None, handle)
        self.queue_new = self._of("rd_kafka_queue_new", handle, handle)
        self.queue_destroy = self._of("rd_kafka_queue_destroy", None, handle)
        self.consume_start = self._of(
            "rd_kafka_consume_start_queue", number, handle, ctypes.c_int32, ctypes.c_int64, handle
        )
        self.consume_stop = self._of("rd_kafka_consume_stop", number, handle, ctypes.c_int32)
        self.consume_batch = self._of(
            "rd_kafka_consume_batch_queue",
            ctypes.c_ssize_t,
            handle,
            number,
            ctypes.POINTER(handle),
            ctypes.c_size_t,
        )
        self.message_destroy = self._quick.rd_kafka_message_destroy
        self.message_destroy.argtypes, self.message_destroy.restype = [handle], None

    def _of(self, name: str, result: object, *arguments: object) -> Any:
        function = getattr(self._waiting, name)
        function.restype, function.argtypes = result, list(arguments)
        return function


_loaded: list[_Library] = []


def _library() -> _Library:
    if not _loaded:
        _loaded.append(_Library())
    return _loaded[0]


class _Client(AbstractContextManager["_Client"]):
    """A producer or a consumer of one topic."""

    def __init__(
        self, kind: int, bootstrap: str, topic: str, settings: Mapping[str, str], *, reports_deliveries: bool = False
    ) -> None:
        """``reports_deliveries``: librdkafka has a callback for the delivery of each record, as most programs give it.
        Without a callback, a flush checks only every 10 ms whether all records are delivered."""
        self.library = _library()
        error = ctypes.create_string_buffer(512)
        conf = self.library.conf_new()
        for name, value in {"bootstrap.servers": bootstrap, "log_level": "2", **settings}.items():
            if self.library.conf_set(conf, name.encode(), value.encode(), error, len(error)):
                raise LoadFailed(f"librdkafka refuses {name}={value}: {error.value.decode()}")
        if reports_deliveries:
            self.library.set_delivery_callback(conf, self.library.no_effect)
        self.handle = self.library.new(kind, conf, error, len(error))
        if not self.handle:
            raise LoadFailed(f"librdkafka does not start: {error.value.decode()}")
        self.topic = self.library.topic_new(self.handle, topic.encode(), None)

    def __exit__(self, *_: object) -> None:
        self.library.topic_destroy(self.topic)
        self.library.destroy(self.handle)


def values(size: int) -> list[bytes]:
    """A thousand different values of so many bytes, the same values every time: half of each repeats, as text does."""
    chance = random.Random(size)
    words = [b"order", b"customer", b"payment", b"shipped", b"returned", b"invoice", b"currency", b"total"]
    found = []
    for _ in range(1_000):
        value = bytearray()
        while len(value) < size:
            value += b'"%s": "%s", ' % (chance.choice(words), chance.randbytes(5).hex().encode())
        found.append(bytes(value[:size]))
    return found


class _Messages:
    """Messages for `rd_kafka_produce_batch`, whose payloads live as long as this object."""

    def __init__(self, payloads: Sequence[bytes], count: int) -> None:
        self._held = [ctypes.create_string_buffer(payload, len(payload)) for payload in payloads]
        self.array = (_Message * count)()
        for number, message in enumerate(self.array):
            payload = self._held[number % len(self._held)]
            message.payload, message.size = ctypes.addressof(payload), len(payload)


def produce(
    bootstrap: str,
    topic: str,
    payloads: Sequence[bytes],
    count: int,
    settings: Mapping[str, str],
    *,
    partition: int = 0,
    most_seconds: float = float("inf"),
) -> tuple[int, float]:
    """Produce ``count`` records. Returns how many were produced, and the seconds from the first one until all are
    answered.

    Ends early, but with every record answered, after ``most_seconds``. The answers may be errors: the caller counts
    successes by end offsets. Raises `LoadFailed` where some records got no answer within a minute.
    """
    messages = _Messages(payloads, BATCH)
    with _Client(_PRODUCER, bootstrap, topic, settings) as client:
        library = client.library
        started = time.perf_counter()
        left = count
        while left and time.perf_counter() - started < most_seconds:
            taken = library.produce_batch(client.topic, partition, 0, messages.array, min(left, BATCH))
            left -= taken
            if taken < min(left + taken, BATCH):
                library.poll(client.handle, 1)  # its queue is full
        if library.flush(client.handle, FLUSH_MS):
            raise LoadFailed(f"records of {topic} had no answer after {FLUSH_MS / 1000:.0f} s")
        return count - left, time.perf_counter() - started


class TransactionalProducer:
    """Commits transactions of equal size in one partition, once it is started. A context."""

    def __init__(
        self, bootstrap: str, topic: str, transactional_id: str, payloads: Sequence[bytes], *, partition: int = 0
    ) -> None:
        """A transaction has a record for each of ``payloads``."""
        self._messages = _Messages(payloads, len(payloads))
        self._partition = partition
        settings = {"transactional.id": transactional_id}
        self._client = _Client(_PRODUCER, bootstrap, topic, settings, reports_deliveries=True)

    def __enter__(self) -> TransactionalProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.__exit__()

    def start(self) -> None:
        """Get an identity from the coordinator, which fences the producer that has had this transactional id. Raises
        `LoadFailed` if that fails."""
        self._check(self._client.library.init_transactions(self._client.handle, TRANSACTION_MS))

    def commit(self) -> None:
        """Begin a transaction, produce its records and commit it. Raises `LoadFailed` for an error of any step."""
        library, client, count = self._client.library, self._client, len(self._messages.array)
        self._check(library.begin_transaction(client.handle))
        taken = library.produce_batch(client.topic, self._partition, 0, self._messages.array, count)
        if taken != count:
            raise LoadFailed(f"librdkafka has taken {taken} of the {count} records of a transaction")
        self._check(library.commit_transaction(client.handle, TRANSACTION_MS))

    def _check(self, error: int | None) -> None:
        """Raise `LoadFailed` for an `rd_kafka_error_t`; null is a success."""
        if error:
            sentence = self._client.library.error_string(error).decode()
            self._client.library.error_destroy(error)
            raise LoadFailed(f"librdkafka's transaction failed: {sentence}")


class Consumer:
    """Reads partitions of a topic from their beginning, without a group. A context."""

    def __init__(self, bootstrap: str, topic: str, settings: Mapping[str, str], *, partitions: int = 1) -> None:
        self._client = _Client(_CONSUMER, bootstrap, topic, {**FAST_CONSUMER, **settings})
        self._partitions = partitions
        self._taken = 0
        library = self._client.library
        self._queue = library.queue_new(self._client.handle)
        self._found = (ctypes.c_void_p * BATCH)()
        for partition in range(partitions):
            library.consume_start(self._client.topic, partition, FROM_THE_BEGINNING, self._queue)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        library = self._client.library
        for partition in range(self._partitions):
            library.consume_stop(self._client.topic, partition)
        library.queue_destroy(self._queue)
        self._client.__exit__()

    def take(self, count: int, *, most_seconds: float = 60.0) -> None:
        """Wait until so many records have come. Raises `LoadFailed` for an error, or if no more records come."""
        library, found = self._client.library, self._found
        left = count
        stalled_at = time.monotonic() + most_seconds
        while left:
            got = library.consume_batch(self._queue, 1_000, found, min(left, BATCH))
            if got > 0:
                left -= got
                self._taken += got
                fault = self._fault(found[got - 1])
                deque(map(library.message_destroy, found[:got]), maxlen=0)
                if fault:
                    raise LoadFailed(fault)
                stalled_at = time.monotonic() + most_seconds
            elif time.monotonic() > stalled_at:
                raise LoadFailed(f"{left} of {count} records did not come within {most_seconds:.0f} s")

    def _fault(self, last: int | None) -> str | None:
        """The fault in the consumed messages; None if there is none. Looking at each message would cost more than the
        record. So only the last message is looked at, whose offset shows whether all before it were records: errors
        come as messages, too."""
        assert last is not None
        message = _Message.from_address(last)
        if message.error:
            return f"librdkafka was handed error {message.error} instead of a record"
        if self._partitions == 1 and message.offset != self._taken - 1:
            return f"message {self._taken} of a partition has offset {message.offset}"
        return None


def consume(bootstrap: str, topic: str, count: int, settings: Mapping[str, str]) -> float:
    """Seconds from a consumer's start until it has consumed ``count`` records of a topic with one partition."""
    started = time.perf_counter()
    with Consumer(bootstrap, topic, settings) as consumer:
        consumer.take(count)
        return time.perf_counter() - started


def version() -> str:
    """The version of librdkafka."""
    import confluent_kafka

    return str(confluent_kafka.libversion()[0])
