"""Produce: one batch that is right, and every way in which a batch or a request can be wrong.

What was appended is read back, so that what the broker made of a batch is compared too.
"""

import struct
from collections.abc import Callable
from typing import Any

from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import ProduceRequest
from storage.batch.record_batch import CONTROL_BIT, HEADER_SIZE, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, Codec
from tests.parity.exchange import Exchange
from tests.support.batches import T, changed, end_marker, produced, record
from tests.support.requests import fetch_request, produce_request

TopicData = ProduceRequest.TopicData
PartitionData = TopicData.PartitionData
DAY_MS = 86_400_000
UNKNOWN = bytes.fromhex("00112233445566778899aabbccddeeff")


def several(*topics: tuple[str, list[tuple[int, Any]]], acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicData(
                name=name,
                partition_data=[PartitionData(index=index, records=memoryview(batch)) for index, batch in partitions],
            )
            for name, partitions in topics
        ],
    )


def resized(batch: memoryview, by: int, tail: bytes = b"") -> memoryview:
    """The batch with bytes cut off or put behind its records, its length and CRC right."""
    raw = bytes(batch)[: len(batch) + min(by, 0)] + tail
    return changed(raw, batch_length=len(raw) - 12)


def run(exchange: Exchange) -> None:
    ids: dict[str, bytes] = {}

    def create(name: str, partitions: int = 1, **configs: object) -> str:
        ids[name] = exchange.create_topic(name, partitions, **configs)
        return name

    def ask_each(step: str, topic: str, batch: Any, **fields: Any) -> None:
        """In every version; from 13 on by the topic's id."""
        options = {key: fields.pop(key) for key in ("since", "until") if key in fields}
        topic_id = ids.get(topic, UNKNOWN)
        exchange.ask_each(step, produce_request(topic, batch, topic_id=topic_id, **fields), **options)

    def read_back(topic: str, partition: int = 0) -> None:
        wanted = fetch_request(topic, topic_id=ids[topic], partition=partition)
        exchange.ask(f"what lies in {topic}-{partition} now", wanted, 12)

    good(create, ask_each, read_back)
    corrupt(create, ask_each, read_back)
    timestamps(create, ask_each, read_back)
    codecs(create, ask_each, read_back)
    requests(exchange, create, ask_each, read_back)
    producers(exchange, create, ask_each, read_back)
    limits(exchange, create, ask_each, read_back)
    decompressed(create, ask_each)


Create = Callable[..., str]
AskEach = Callable[..., None]
ReadBack = Callable[..., None]


def good(create: Create, ask_each: AskEach, read_back: ReadBack) -> None:
    good = create("good")
    ask_each("a batch of one record", good, produced(1))
    ask_each("a batch of five records", good, produced(5))
    ask_each("a batch of a hundred records", good, produced(100))
    ask_each("a record with neither key nor value", good, produced([record(None, key=None)]))
    ask_each("a record with headers", good, produced([record(headers=[("h", b"v"), ("h", None), ("", b"")])]))
    ask_each("acks 1", good, produced(1), acks=1)
    ask_each("another leader epoch in the batch", good, changed(produced(1), partition_leader_epoch=77))
    read_back(good)


def corrupt(create: Create, ask_each: AskEach, read_back: ReadBack) -> None:
    bad = create("corrupt")
    whole = produced(3)
    one = bytes(produced([record()]))
    ask_each("a wrong CRC", bad, changed(whole, crc=1))
    for magic in (0, 1, 3, 127, -1):
        ask_each(f"magic {magic}", bad, changed(whole, magic=magic))
    for length in (0, -1, 10, 13, 48, 49, len(whole) - 13, len(whole) - 11, 0x7FFF_FFFF, -0x8000_0000):
        spoiled = bytearray(whole)
        struct.pack_into(">i", spoiled, 8, length)
        ask_each(f"a batch length of {length}", bad, spoiled)
    for count in (0, 1, 2, 4, 0x7FFF_FFFF, -1):
        ask_each(f"{count} records counted where there are three", bad, changed(whole, record_count=count))
        ask_each(
            f"{count} records counted, the last delta to suit",
            bad,
            changed(whole, record_count=count, last_offset_delta=count - 1),
        )
    for delta in (0, 1, 3, -1, 0x7FFF_FFFF):
        ask_each(f"a last offset delta of {delta} for three records", bad, changed(whole, last_offset_delta=delta))
    for offset in (1, 100, -1, 2**62, -(2**63)):
        ask_each(f"a base offset of {offset}", bad, changed(whole, base_offset=offset))
    ask_each("empty records", bad, b"")
    for size in (1, 11, 12, 16, 17, 60, HEADER_SIZE, len(whole) - 1):
        ask_each(f"the first {size} bytes of a batch", bad, bytes(whole[:size]))
    ask_each(
        "a batch without records",
        bad,
        changed(bytes(whole[:HEADER_SIZE]), batch_length=49, record_count=0, last_offset_delta=-1),
    )
    ask_each(
        "a batch of 0 records whose last delta is 0",
        bad,
        changed(bytes(whole[:HEADER_SIZE]), batch_length=49, record_count=0, last_offset_delta=0),
    )
    ask_each("two batches", bad, bytes(produced(1)) + bytes(produced(2)))
    ask_each("the second batch cut short", bad, bytes(produced(1)) + bytes(produced(2))[:-1])
    ask_each("five bytes behind the batch", bad, bytes(produced(1)) + b"12345")
    ask_each("seventeen zero bytes behind the batch", bad, bytes(produced(1)) + bytes(17))
    ask_each("the records cut by a byte", bad, resized(whole, -1))
    ask_each("a byte behind the last record", bad, resized(whole, 0, b"\0"))
    ask_each("a control batch", bad, changed(whole, attributes=CONTROL_BIT))
    ask_each("an end marker", bad, end_marker(commit=True, producer_id=1, producer_epoch=0))
    for bit in (6, 7, 8, 15):
        ask_each(f"attribute bit {bit}", bad, changed(one, attributes=-0x8000 if bit == 15 else 1 << bit))
    for position, what in ((HEADER_SIZE, "a record's length"), (HEADER_SIZE + 4, "a key's length")):
        for byte in (0x00, 0x01, 0x7E, 0x7F, 0xFF):
            spoiled = bytearray(one)
            spoiled[position] = byte
            ask_each(f"{what} is the byte {byte:#x}", bad, changed(spoiled))
    for name, byte in (("attributes", 0xFF), ("attributes", 0x01)):
        spoiled = bytearray(one)
        spoiled[HEADER_SIZE + 1] = byte
        ask_each(f"a record's {name} {byte:#x}", bad, changed(spoiled))
    for delta in (0x02, 0x01, 0x0A):
        spoiled = bytearray(one)
        spoiled[HEADER_SIZE + 3] = delta
        ask_each(f"a record's offset delta is the byte {delta:#x}", bad, changed(spoiled))
    for count in (0x01, 0x02, 0x7E):
        spoiled = bytearray(one)
        spoiled[-1] = count
        ask_each(f"a record's header count is the byte {count:#x}", bad, changed(spoiled))
    read_back(bad)


def timestamps(create: Create, ask_each: AskEach, read_back: ReadBack) -> None:
    plain = create("timed")
    for time in (0, -1, -5, 1, T, 2**62, -(2**63), 2**63 - 1):
        ask_each(f"timestamp {time}", plain, produced([record(timestamp=time)]))
    both = produced([record(timestamp=T), record(timestamp=2**62), record(timestamp=2**62), record(timestamp=T)])
    ask_each("two of four timestamps far in the future", plain, both)
    for wrong in (0, T + 1, 2**62, -1):
        ask_each(f"a max timestamp of {wrong} in the header", plain, changed(produced(3), max_timestamp=wrong))
    ask_each("the LogAppendTime bit set by the client", plain, changed(produced(3), attributes=LOG_APPEND_TIME_BIT))
    read_back(plain)
    past = create("past", message_timestamp_before_max_ms=DAY_MS)
    for time in (0, -1, T):
        ask_each(f"timestamp {time} where the past has a limit", past, produced([record(timestamp=time)]))
    ask_each("one of three too old", past, produced([record(timestamp=-1), record(timestamp=T), record(timestamp=-1)]))
    read_back(past)
    stamped = create("stamped", message_timestamp_type="LogAppendTime")
    ask_each("a topic with LogAppendTime", stamped, produced(2))
    for time in (-1, 2**62, 0):
        ask_each(f"timestamp {time} on a topic with LogAppendTime", stamped, produced([record(timestamp=time)]))
    ask_each(
        "the LogAppendTime bit on a topic with LogAppendTime",
        stamped,
        changed(produced(1), attributes=LOG_APPEND_TIME_BIT),
    )
    read_back(stamped)
    compacted = create("compacted", cleanup_policy="compact")
    ask_each("keys on a compacted topic", compacted, produced(2))
    ask_each("no key on a compacted topic", compacted, produced([record(key=None)]))
    keyless = [
        record(),
        record(key=None),
        record(),
        record(key=None),
        record(key=None),
        record(key=None),
        record(key=None),
    ]
    ask_each("five of seven records without a key on a compacted topic", compacted, produced(keyless))
    ask_each("an empty key on a compacted topic", compacted, produced([record(key=b"")]))
    mixed = [record(key=None), record(timestamp=2**62), record(key=None, timestamp=2**62)]
    ask_each("records without a key and records of the future", compacted, produced(mixed))
    ask_each("a key without a value on a compacted topic", compacted, produced([record(None)]))
    read_back(compacted)
    both = create("compacted-deleted", cleanup_policy="compact,delete")
    ask_each("no key on a topic that is compacted and deleted", both, produced([record(key=None)]))


def codecs(create: Create, ask_each: AskEach, read_back: ReadBack) -> None:
    plain = create("codecs")
    for codec in Codec:
        ask_each(f"a batch in {codec.name.lower()}", plain, produced(3, codec=codec))
        ask_each(f"a batch of fifty in {codec.name.lower()}", plain, produced(50, codec=codec))
    for number in (5, 6, 7):
        ask_each(f"codec {number}", plain, changed(produced(3), attributes=number))
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        name = codec.name.lower()
        ask_each(f"plain records called {name}", plain, changed(produced(3), attributes=codec))
        squeezed = produced(3, codec=codec)
        ask_each(f"{name} cut by a byte", plain, resized(squeezed, -1))
        ask_each(f"{name} with four bytes behind it", create(f"behind-{name}"), resized(squeezed, 0, b"rest"))
        ask_each(f"{name} without any data", plain, resized(squeezed, HEADER_SIZE - len(squeezed)))
        ask_each(f"{name}, four records counted", plain, changed(squeezed, record_count=4, last_offset_delta=3))
        ask_each(f"{name}, two records counted", plain, changed(squeezed, record_count=2, last_offset_delta=1))
    read_back(plain)
    for codec in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
        topic = create(f"to-{codec}", compression_type=codec)
        for sent in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
            ask_each(f"{sent.name.lower()} for a topic in {codec}", topic, produced(3, codec=sent))


def requests(exchange: Exchange, create: Create, ask_each: AskEach, read_back: ReadBack) -> None:
    orders = create("orders", partitions=3)
    batch = produced(1)
    for acks in (2, -2, 5, 0x7FFF, -0x8000):
        ask_each(f"acks {acks}", orders, batch, acks=acks)
        ask_each(f"acks {acks}, an unknown topic", "nope", batch, acks=acks)
    ask_each("an unknown topic", "nope", batch)
    for partition in (3, -1, 0x7FFF_FFFF, -0x8000_0000):
        ask_each(f"partition {partition}", orders, batch, partition=partition)
    for name in ("", ".", "no spaces", "a" * 250, "__cluster_metadata", "__consumer_offsets"):
        ask_each(f"the topic name {name!r:.20}", name, batch, until=12)
    exchange.ask("the zero id", produce_request("orders", batch), 13)
    wrong = changed(batch, crc=1)
    ask_each("a wrong CRC for an unknown topic", "nope", wrong)
    for version in range(3, 14):
        for topic, partition, what in ((orders, 0, "good"), (orders, 0, "again"), (orders, 2, "another partition")):
            exchange.tell(
                f"acks 0, {what}",
                produce_request(topic, batch, partition=partition, acks=0, topic_id=exchange.topic_ids[orders]),
                version,
            )
        exchange.tell("acks 0, an unknown topic", produce_request("nope", batch, acks=0, topic_id=UNKNOWN), version)
        exchange.tell(
            "acks 0, a wrong CRC", produce_request(orders, wrong, acks=0, topic_id=exchange.topic_ids[orders]), version
        )
        exchange.tell(
            "acks 0, an unknown partition",
            produce_request(orders, batch, partition=3, acks=0, topic_id=exchange.topic_ids[orders]),
            version,
        )
    exchange.ask_each("no topics", several(), until=12)
    exchange.ask_each("a topic without partitions", several((orders, [])), until=12)
    exchange.ask_each(
        "three partitions, out of order", several((orders, [(2, batch), (0, batch), (1, batch)])), until=12
    )
    mixed = several((orders, [(1, wrong), (0, batch), (9, batch)]), ("nope", [(0, batch)]))
    exchange.ask_each("good and bad partitions in one request", mixed, until=12)
    exchange.ask_each("the same topic twice", several((orders, [(0, batch)]), (orders, [(1, batch)])), until=12)
    exchange.ask_each(
        "null for the records",
        produce_request(orders, None, topic_id=exchange.topic_ids[orders]),
        versions=(3, 13),
        patience_s=2,
    )
    exchange.ask_each("a client id of null", produce_request(orders, batch), until=12, client_id=None)
    for partition in range(3):
        read_back(orders, partition)
    transactional(exchange, create("transactional", partitions=2), ask_each)


def transactional(exchange: Exchange, topic: str, ask_each: AskEach) -> None:
    batch = produced(1)
    ask_each("a transactional id and a plain batch", topic, batch, transactional_id="tx")
    ask_each(
        "a transactional batch without a transactional id",
        topic,
        changed(batch, attributes=TRANSACTIONAL_BIT, producer_id=5, producer_epoch=0, base_sequence=0),
    )
    ask_each("a transactional batch and no producer id", topic, changed(batch, attributes=TRANSACTIONAL_BIT))
    ask_each(
        "a transactional batch and no producer id, with a transactional id",
        topic,
        changed(batch, attributes=TRANSACTIONAL_BIT),
        transactional_id="tx",
    )
    half = several((topic, [(0, batch), (1, changed(batch, attributes=TRANSACTIONAL_BIT))]))
    exchange.ask_each("a transactional batch beside a plain one", half, until=12)


def producers(exchange: Exchange, create: Create, ask_each: AskEach, read_back: ReadBack) -> None:
    identity = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    exchange.wait_until(identity, 4, lambda answer: not answer.error_code)
    new = exchange.ask("a producer's identity", identity, 4)
    one = new.producer_id
    idem = create("idempotent", partitions=14)

    def batch(sequence: int, count: int = 1, *, producer_id: int = one, epoch: int = 0) -> memoryview:
        return changed(produced(count), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    def ask(step: str, sent: Any, partition: int = 0, **fields: Any) -> None:
        """In the versions that say it differently, each with a partition of its own."""
        for index, version in enumerate((3, 7, 12)):
            request = produce_request(idem, sent, partition=partition * 3 + index, **fields)
            exchange.ask(step, request, version)

    ask("the first batch of a producer", batch(0))
    ask("the second, of three records", batch(1, 3))
    ask("the second once more", batch(1, 3))
    ask("the first once more", batch(0))
    ask("a gap in the sequence", batch(9))
    ask("the sequence goes back by one", batch(3))
    ask("the right sequence, another count", batch(1, 2))
    ask("the sequence goes on", batch(4, 2))
    ask("a new epoch that begins at 1", batch(1, epoch=1))
    ask("a new epoch that begins at 0", batch(0, epoch=1))
    ask("the epoch before", batch(6))
    ask("the epoch before, from 0", batch(0))
    ask("an epoch left out", batch(0, epoch=7))
    for step in range(1, 8):
        ask(f"batch {step} of the newest epoch", batch(step, epoch=7))
    for old in (1, 2, 3, 7):
        ask(f"batch {old} of the newest epoch once more", batch(old, epoch=7))
    ask("an unknown producer that begins at 0", batch(0, producer_id=77_777), 1)
    ask("an unknown producer that begins at 5", batch(5, producer_id=88_888), 1)
    ask("an unknown producer in an epoch of 9 that begins at 5", batch(5, producer_id=99_999, epoch=9), 1)
    ask("a producer id without a sequence", batch(-1), 2)
    ask("a producer id without a sequence, far below", batch(-5), 2)
    ask("a producer id without an epoch", batch(0, epoch=-1), 2)
    ask("a sequence without a producer id", batch(0, producer_id=-1), 2)
    ask("an epoch without a producer id", batch(-1, producer_id=-1), 2)
    ask("producer -2", batch(0, producer_id=-2), 2)
    ask("the highest sequence", batch(0x7FFF_FFFF, producer_id=66_666), 3)
    ask("the sequence after the highest", batch(0, producer_id=66_666), 3)
    ask("a batch across the highest sequence", batch(0x7FFF_FFFE, 4, producer_id=55_555), 3)
    ask("the sequence behind it", batch(2, producer_id=55_555), 3)
    for partition in range(12):
        read_back(idem, partition)


def limits(exchange: Exchange, create: Create, ask_each: AskEach, read_back: ReadBack) -> None:
    limited = create("limited", max_message_bytes=1000)
    overhead = len(produced([record(b"")]))
    for size in (999, 1000, 1001):
        # A value of 130 to 8191 bytes has one more byte of length, and so has its record.
        sized = produced([record(b"x" * (size - overhead - 2))])
        ask_each(f"{len(sized)} bytes where 1000 are allowed", limited, sized)
    ask_each("a record that shrinks below the limit", limited, produced([record(b"x" * 5000)], codec=Codec.GZIP))
    shortest = create("short-segments", segment_bytes=1_048_576, max_message_bytes=4_000_000)
    ask_each("more than a segment", shortest, produced([record(b"x" * 1_100_000)]))
    for size in (1_048_588, 1_048_589):
        default = create(f"default-limit-{size}")
        sized = produced([record(b"x" * (size - 80))])
        sized = produced([record(b"x" * (size - 80 + size - len(sized)))])
        exchange.ask(f"a batch of {len(sized)} bytes", produce_request(default, sized), 12)
    strict = create("two-in-sync", min_insync_replicas=2)
    ask_each("two replicas in sync wanted, acks -1", strict, produced(1))
    ask_each("two replicas in sync wanted, acks 1", strict, produced(1), acks=1)
    read_back(limited)


LARGE_BYTES = 128
"""Bytes of the larger record behind its length: its value has 120 of them."""


def decompressed(create: Create, ask_each: AskEach) -> None:
    small, large = record(b"x", key=b"k"), record(b"x" * 120, key=b"k")

    def ask(step: str, topic: str, batch: memoryview) -> None:
        ask_each(f"{step}, {topic}", topic, batch, since=12, until=12)

    for codec in Codec:
        roomy = create(f"up-to-{LARGE_BYTES}-in-{codec.name.lower()}", max_decompressed_message_bytes=LARGE_BYTES)
        ask(f"a record of {LARGE_BYTES} bytes", roomy, produced([large], codec=codec))
        tight = create(
            f"up-to-{LARGE_BYTES - 1}-in-{codec.name.lower()}", max_decompressed_message_bytes=LARGE_BYTES - 1
        )
        for count in (0, 1, 5, 200):
            ask(f"a large record behind {count} others", tight, produced([*([small] * count), large], codec=codec))
        ask("many small records", tight, produced([small] * 500, codec=codec))
        late = [record(b"x", timestamp=2**62), large]
        ask("a record of the future and a large one", tight, produced(late, codec=codec))
        two = produced([small, large], codec=codec)
        for count in (1, 3):
            miscounted = changed(two, record_count=count, last_offset_delta=count - 1)
            ask(f"a small and a large record, {count} counted", tight, miscounted)
    for target in ("zstd", "uncompressed"):
        converted = create(
            f"up-to-{LARGE_BYTES - 1}-into-{target}",
            max_decompressed_message_bytes=LARGE_BYTES - 1,
            compression_type=target,
        )
        for codec in Codec:
            ask(f"a large record in {codec.name.lower()}", converted, produced([large], codec=codec))
            ask(f"a small record in {codec.name.lower()}", converted, produced([small], codec=codec))
    compacted = create("large-compacted", max_decompressed_message_bytes=LARGE_BYTES - 1, cleanup_policy="compact")
    ask("a record without a key and a large one", compacted, produced([record(key=None), large], codec=Codec.LZ4))
    bombs = create("bombs", max_decompressed_message_bytes=100_000)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        ask(f"ten million bytes in {codec.name.lower()}", bombs, produced([record(b"x" * 10_000_000)], codec=codec))
