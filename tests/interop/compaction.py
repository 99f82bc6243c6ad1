"""Compacted topics for Ottla and Apache Kafka, what each has made of them, and swaps that were left half done."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientsPartition

from config.log_config import LogConfig
from dev.broker_process import BrokerProcess
from dev.waiting import until
from storage.batch.record_batch import Codec
from storage.batch.records import Record, iterate_records
from storage.batch.walk import BatchWalk, WalkPolicy, in_memory
from storage.checkpoints import CLEAN_SHUTDOWN
from storage.cleaning.order import CleanedGroup
from storage.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX
from storage.loading import open_log
from storage.topic_partition import TopicPartition
from tests.interop.directories import LATEST, Visitor
from tests.support.batches import produced
from tests.support.cleaner_processes import segment_bases
from tests.support.cleaning import CompactedLog, Pair
from tests.support.cleaning import table as last_values
from tests.support.clients import Received
from tests.support.clients.confluent_kafka_client import received
from tests.support.files import PowerLost
from tests.support.logs import LogHome

BEGAN_MS: Final = int(time.time() * 1000)
STEP_MS: Final = 120_000
"""The time between two steps, in each of which every log begins a new segment."""

COMPACTED: Final = {
    "cleanup_policy": "compact", "segment_ms": "60000", "segment_index_bytes": "8192", "index_interval_bytes": "200",
    "file_delete_delay_ms": "0", "message_timestamp_after_max_ms": "86400000",
}  # fmt: skip

NOTHING_IS_DUE: Final = {"log.cleaner.min.cleanable.ratio": "1"}
EVERYTHING_IS_DUE: Final = {"log.cleaner.min.cleanable.ratio": "0", "log.cleaner.backoff.ms": "100"}

TABLES: Final = ("codecs", "tombstones", "passed", "idempotent", "transactions", "waiting")
"""The topics that `write` creates."""

Table = dict[bytes, bytes]


# Writing --------------------------------------------------------------------------------------------------------------


class Writer:
    """Writes batches of steps. All steps are in the future, behind the timestamps of markers."""

    def __init__(self, broker: BrokerProcess, visitor: Visitor) -> None:
        self.broker = broker
        self.visitor = visitor

    def put(
        self,
        topic: str,
        step: int,
        *pairs: Pair,
        partition: int = 0,
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        sequence: int = -1,
    ) -> None:
        """Append one batch of these keys and values."""
        records = [
            Record(
                timestamp=_time_of(step) + n, key=key, value=value,
                headers=[("step", b"%d" % step), ("none", None)],
            )
            for n, (key, value) in enumerate(pairs)
        ]  # fmt: skip
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence} if sequence >= 0 else {}
        self.visitor.produce(topic, produced(records, codec=codec, **fields), partition=partition)

    def transaction(self, name: str, step: int, places: dict[tuple[str, int], Sequence[Pair]], end: str) -> Producer:
        """Write records in a transaction, and end it: "commit", "abort", or "" to leave it open."""
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap, "transactional.id": name,
                "transaction.timeout.ms": 900_000, "linger.ms": 50,
            }
        )  # fmt: skip
        producer.init_transactions(60)
        producer.begin_transaction()
        for (topic, partition), pairs in places.items():
            for key, value in pairs:
                producer.produce(topic, value, key, partition, timestamp=_time_of(step))
        producer.flush()
        if end:
            self.end(producer, end, places)
        return producer

    def end(self, producer: Producer, end: str, places: Iterable[tuple[str, int]]) -> None:
        """End a transaction, and wait for its markers: Kafka's coordinator answers before they are written."""
        before = {place: self._log_end(place) for place in places}
        getattr(producer, f"{end}_transaction")(60)
        until(lambda: all(self._log_end(place) > offset for place, offset in before.items()), "the markers")

    def _log_end(self, place: tuple[str, int]) -> int:
        return self.visitor.offset_at(place[0], LATEST, partition=place[1])

    def roll(self, step: int) -> None:
        """Begin a segment in every log, which is not cleaned."""
        for topic in TABLES:
            self.put(topic, step, (b"last", b"%d" % step))


def _time_of(step: int) -> int:
    return BEGAN_MS + 3_600_000 + step * STEP_MS


def write(writer: Writer) -> None:
    """All topics, with everything that the cleaner treats in a way of its own."""
    for topic in TABLES:
        configs = COMPACTED | ({"delete_retention_ms": "0"} if topic == "passed" else {})
        writer.visitor.create(topic, **configs)
    _codecs(writer, 0)
    for topic in ("tombstones", "passed"):
        writer.put(topic, 0, *((key, b"1") for key in (b"a", b"b", b"c", b"d", b"e")), codec=Codec.GZIP)
        writer.put(topic, 1, (b"a", None), (b"b", None), codec=Codec.LZ4)
        writer.put(topic, 1, (b"e", None))
        writer.put(topic, 2, (b"b", b"2"), (b"c", None), (b"never there", None))
    # The last batch of 5001 is superseded, that of 5002 in part, that of 5003 not at all; 5004 has superseded its own.
    writer.put("idempotent", 0, (b"a", b"1"), (b"b", b"1"), producer_id=5001, sequence=0)
    writer.put("idempotent", 0, (b"a", b"2"), (b"b", b"2"), producer_id=5001, sequence=2)
    writer.put("idempotent", 0, (b"c", b"1"), (b"d", b"1"), producer_id=5002, sequence=0, codec=Codec.ZSTD)
    writer.put("idempotent", 1, (b"e", b"1"), producer_id=5003, sequence=0)
    for number in range(4):
        writer.put("idempotent", 1, (b"f", b"%d" % number), producer_id=5004, sequence=number)
    writer.put("idempotent", 2, (b"a", b"3"), (b"b", b"3"), (b"c", b"3"))
    _transactions(writer, 0)
    writer.put("waiting", 0, (b"a", b"1"), (b"b", b"1"))
    writer.put("waiting", 1, (b"a", b"2"))
    writer.transaction("waiting", 2, {("waiting", 0): [(b"b", b"nobody knows yet")]}, "")
    writer.put("waiting", 3, (b"a", b"3"))
    writer.roll(4)


def write_more(writer: Writer) -> None:
    """More of it in all topics, once what was there has been cleaned; the open transaction is ended."""
    _codecs(writer, 6)
    for topic in ("tombstones", "passed"):
        writer.put(topic, 6, (b"d", None), (b"a", b"again"))
    writer.put("idempotent", 6, (b"g", b"1"), producer_id=5001, sequence=4)
    writer.put("idempotent", 6, (b"f", b"9"), (b"e", b"9"))
    _transactions(writer, 6)
    writer.transaction("waiting", 6, {("waiting", 0): [(b"c", b"1")]}, "commit")
    writer.roll(10)


def _codecs(writer: Writer, step: int) -> None:
    for turn in range(step, step + 3):
        for codec in Codec:
            name = codec.name.encode()
            pairs = [(b"%s %d" % (name, (turn + n) % 4), b"%d " % turn * 40) for n in range(3)]
            writer.put("codecs", turn, *pairs, (b"all", name), codec=codec)


def _transactions(writer: Writer, step: int) -> None:
    place = ("transactions", 0)
    writer.transaction("first", step, {place: [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]}, "commit")
    writer.transaction("first", step, {place: [(b"a", b"aborted"), (b"d", b"aborted")]}, "abort")
    open_one = writer.transaction("second", step + 1, {place: [(b"b", b"aborted too"), (b"e", b"aborted")]}, "")
    writer.transaction("third", step + 1, {place: [(b"c", None), (b"f", b"%d" % step)]}, "commit")
    writer.end(open_one, "abort", [place])
    writer.transaction("fourth", step + 2, {place: [(b"g", b"superseded")]}, "commit")
    writer.put("transactions", step + 2, (b"a", b"2"), (b"g", b"2"))


# Reading --------------------------------------------------------------------------------------------------------------


NOT_YET: Final = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._UNKNOWN_PARTITION)


def _end_offset(consumer: Consumer, place: ClientsPartition) -> int:
    """Where a partition ends. A broker that has just started may not lead it yet."""
    ends: list[int] = []

    def is_told() -> bool:
        try:
            ends.append(consumer.get_watermark_offsets(place, 60)[1])
        except KafkaException as refusal:
            if refusal.args[0].code() not in NOT_YET:
                raise
        return bool(ends)

    until(is_told, f"the end of {place.topic}-{place.partition}")
    return ends[0]


def committed(bootstrap: str, topic: str, partition: int = 0) -> list[Received]:
    """What a consumer of committed records gets of a partition, from its start to its end now."""
    found: list[Received] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "tables", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    with contextlib.closing(consumer):
        place = ClientsPartition(topic, partition, 0)
        # It is told of the end by a fetch that finds nothing, and others may go on writing.
        end_offset = _end_offset(consumer, place)
        consumer.assign([place])
        while True:
            message: Any = consumer.poll(60)
            assert message is not None, f"the end of {topic}-{partition} does not come"
            if message.error() or message.offset() >= end_offset:
                return found
            found.append(received(message))


def table(broker: BrokerProcess, topic: str, partition: int = 0) -> Table:
    """The last value of each key, as a consumer of committed records finds it."""
    return last_values(committed(broker.bootstrap, topic, partition))


def tables(broker: BrokerProcess) -> dict[str, Table]:
    """All that `write` has written."""
    return {topic: table(broker, topic) for topic in TABLES}


class BatchSeen(NamedTuple):
    """A batch in a file, without epochs of leaders and coordinators, the time of a marker, and what depends on the
    compressor. The base timestamp is left out too: where records go, Kafka takes that of the first record that stays,
    and Ottla lets it be as it was."""

    base_offset: int
    last_offset: int
    attributes: int
    max_timestamp: int
    producer: tuple[int, int, int]
    records: tuple[tuple[object, ...], ...]
    """Offset, key, value, timestamp, headers; of a marker offset and key."""


def segments(directory: Path) -> dict[int, list[BatchSeen]]:
    """What the files of a log hold, by base offset."""
    return {base: list(_batches(directory / f"{base:020d}{LOG_SUFFIX}")) for base in segment_bases(directory)}


def logs(data: Path) -> dict[str, dict[int, list[BatchSeen]]]:
    """What the files of all topics that `write` has made hold, by topic."""
    return {topic: segments(data / f"{topic}-0") for topic in TABLES}


def _batches(path: Path) -> Iterator[BatchSeen]:
    data = path.read_bytes()
    for header, _, batch in BatchWalk(in_memory(data), 0, len(data), WalkPolicy(checks_crc=True)):
        yield BatchSeen(
            header.base_offset,
            header.last_offset,
            header.attributes,
            0 if header.is_control else header.max_timestamp,
            (header.producer_id, header.producer_epoch, header.base_sequence),
            tuple(
                # Of a marker the time and the coordinator's epoch differ.
                (one.offset, one.key)
                if header.is_control
                else (one.offset, one.key, one.value, one.timestamp, repr(one.headers))
                for one in iterate_records(batch)
            ),
        )


# Swaps that are left half done ----------------------------------------------------------------------------------------

SWAPPED: Final = "swapped"


def write_swapped(writer: Writer, partitions: int) -> None:
    """Partitions with the same records: three segments to be cleaned, with an aborted transaction in each."""
    writer.visitor.create(SWAPPED, partitions=partitions, **COMPACTED)
    places = [(SWAPPED, partition) for partition in range(partitions)]
    for step in range(3):
        for _, partition in places:
            pairs = [(b"%d" % ((step + n) % 5), b"%d" % step) for n in range(3)]
            writer.put(SWAPPED, step, *pairs, (b"of step %d" % step, b""), partition=partition)
        writer.transaction("first", step, {place: [(b"0", b"aborted")] for place in places}, "abort")
    for _, partition in places:
        writer.put(SWAPPED, 3, (b"last", b""), partition=partition)


def clean_and_die(data: Path, partition: int, changes: int) -> bool:
    """Clean a log by Ottla's storage, and stop after so many changes of names; whether that was before the end.

    Two copies are made, of the first two segments and of the third; then they are swapped in.
    """
    place = TopicPartition(SWAPPED, partition)
    directory = data / place.dir_name
    first, second, third, _ = segment_bases(directory)
    sizes = [(directory / f"{base:020d}{LOG_SUFFIX}").stat().st_size for base in (first, second, third)]
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=sum(sizes) - 1, file_delete_delay_ms=0)
    home = LogHome(data, now_ms=BEGAN_MS)
    log = open_log(home.files, str(directory), topic_partition=place, config=config, now_ms=BEGAN_MS, was_clean=True)
    log.advance_high_watermark(log.log_end_offset)
    compacted = CompactedLog(home, log)
    groups = [found for found in compacted.copies() if isinstance(found, CleanedGroup)]
    assert [group.base_offsets for group in groups] == [(first, second), (third,)]
    home.files.lose_power_after(changes)
    try:
        for group in groups:
            compacted.swap(group)
    except PowerLost:
        return True
    finally:
        log.abandon()
    return False


_RENAMED: Final = tuple(SEGMENT_SUFFIXES)
"""Kafka renames the files of a segment in this order: batches, offset index, time index, transaction index."""


def states_of_kafka() -> list[tuple[int, int, int]]:
    """How far Kafka's `replaceSegments` may have come: how many files of the copy are `.swap`, how many segments are
    `.deleted`, how many files of the copy have their name."""
    files = len(_RENAMED)
    return [
        *((number, 0, 0) for number in range(files + 1)),
        *((files, number, 0) for number in (1, 2, 3)),
        *((files, 3, number) for number in range(1, files + 1)),
    ]


def leave_swap_of_kafka(before: Path, cleaned: Path, state: tuple[int, int, int]) -> None:
    """Let ``before``, a log that is not cleaned, look as if Kafka had died when it was about to have ``cleaned``."""
    swapped, deleted, named = state
    copied, active = segment_bases(cleaned)
    replaced = [base for base in segment_bases(before) if base < active]
    for base in replaced[:deleted]:
        for suffix in _RENAMED:
            path = before / f"{base:020d}{suffix}"
            if path.exists():
                path.rename(f"{path}{DELETED_SUFFIX}")
    for number, suffix in enumerate(_RENAMED):
        ending = "" if number < named else SWAP_SUFFIX if number < swapped else CLEANED_SUFFIX
        copy = cleaned / f"{copied:020d}{suffix}"
        (before / f"{copy.name}{ending}").write_bytes(copy.read_bytes())


def was_killed(data: Path) -> None:
    """Let a directory look as after a kill."""
    (data / CLEAN_SHUTDOWN).unlink()
