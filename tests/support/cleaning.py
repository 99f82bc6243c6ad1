"""A compacted log, cleaned in the test's own process as the broker and its cleaner do it together."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from config.log_config import LogConfig
from storage.batch.record_batch import Codec, read_header
from storage.batch.records import Record, encode_batch, iterate_records
from storage.batch.validation import ValidatedBatch
from storage.batch.walk import BatchWalk, in_memory
from storage.check.findings import Finding, Findings
from storage.check.log_check import Claims, check_log
from storage.cleaning.candidates import Cleanable, cleanable, order_for
from storage.cleaning.order import CleanedGroup, CleanerLimits, CleaningOrder, CleaningReport, conclude, messages
from storage.cleaning.round import CleaningRound
from storage.log import Log
from storage.segment_swap import SegmentSwap
from tests.support.logs import LogHome, T, marker

COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=600, index_interval_bytes=150, segment_index_bytes=480,
    delete_retention_ms=86_400_000, retention_ms=-1,
)  # fmt: skip

LIMITS = CleanerLimits(
    map_bytes=1 << 20, map_load_factor=0.9, io_buffer_bytes=1 << 16, max_bytes_per_second=1e308, reserve_bytes=0
)

Pair = tuple[bytes | None, bytes | None]


def keyed(
    *pairs: Pair,
    timestamp: int = T,
    producer_id: int = -1,
    sequence: int = 0,
    is_transactional: bool = False,
    codec: Codec = Codec.NONE,
) -> ValidatedBatch:
    """A batch of records with these keys and values, each a millisecond after the one before, as a client sends it."""
    data = encode_batch(
        [Record(timestamp=timestamp + n, key=key, value=value) for n, (key, value) in enumerate(pairs)],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence if producer_id >= 0 else -1,
        is_transactional=is_transactional,
        codec=codec,
    )
    return ValidatedBatch(header=read_header(data), data=memoryview(data), log_append_time_ms=-1)


def in_order(order: CleaningOrder) -> CleaningOrder:
    """The order as the cleaner's process gets it."""
    import json

    return CleaningOrder.from_message(json.loads(json.dumps(order.to_message())))


@dataclass
class CompactedLog:
    """A log with `cleanup.policy=compact` that is written to, cleaned, and opened again."""

    home: LogHome
    log: Log
    sequences: dict[int, int] = field(default_factory=dict)

    @classmethod
    def make(cls, path: Path, config: LogConfig = COMPACTED) -> "CompactedLog":
        """A new log in a directory of the test."""
        home = LogHome(path, config=config)
        return cls(home, home.open())

    def write(self, *pairs: Pair, producer_id: int = -1, is_transactional: bool = False, **given: object) -> int:
        """Append one batch; returns its first offset."""
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(pairs)
        batch = keyed(
            *pairs, timestamp=self.home.now_ms, producer_id=producer_id, sequence=sequence,
            is_transactional=is_transactional, **given,  # type: ignore[arg-type]
        )  # fmt: skip
        return self.home.append(self.log, batch).first_offset

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Append the marker of a producer's transaction."""
        data = marker(producer_id, commit=commit, timestamp=self.home.now_ms)
        self.log.stage_trusted(data, leader_epoch=0)
        self.log.append_all(self.home.now_ms)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def roll(self) -> None:
        """Begin a new segment and flush the others, so that everything so far can be cleaned."""
        self.log.roll(self.home.now_ms)
        flush = self.log.begin_flush(self.home.now_ms)
        if flush is not None:
            flush.perform()
            self.log.complete_flush(flush)

    def reopen(self, *, clean: bool) -> None:
        """Stop the broker and start it again: in order, or by a crash that loses nothing."""
        if clean:
            self.log.close(self.home.now_ms)
        else:
            self.log.abandon()
        self._start(clean=clean)

    def _start(self, *, clean: bool) -> None:
        cleaned_to = self.log.cleaned_to
        self.log = self.home.open(clean=clean)
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.log.cleaned_to = cleaned_to

    def verified(
        self, doctor: Callable[[Path], None] = lambda directory: None, *, clean: bool = True, **claimed: int
    ) -> list[Finding]:
        """What a check of the files finds between a stop and the next start, after ``doctor`` has changed them.

        ``claimed`` are claims of the checkpoints that are not the truth.
        """
        log = self.log
        claims = Claims(
            was_clean=clean,
            recovery_point=log.log_end_offset if clean else log.recovery_point,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            cleaned_to=log.cleaned_to,
            producer_id_expiration_ms=1 << 60,
        )
        if clean:
            log.close(self.home.now_ms)
        else:
            log.abandon()
        directory = Path(self.home.directory)
        doctor(directory)
        found: list[Finding] = []
        findings = Findings(found.append, lambda size: None)
        check_log(self.home.files, self.home.directory, replace(claims, **claimed), findings)  # type: ignore[arg-type]
        self._start(clean=clean)
        return found

    # Cleaning ---------------------------------------------------------------------------------------------------------

    def candidate(self) -> Cleanable:
        """How dirty the log is now."""
        return cleanable(self.log, self.home.now_ms)

    def copies(self, limits: CleanerLimits = LIMITS) -> Iterator[CleanedGroup | CleaningReport]:
        """What the cleaner's process says in a round over the log."""
        order = in_order(order_for(self.candidate(), limits, self.home.now_ms))
        cleaning_round = CleaningRound(self.home.files, order, lambda _: None)
        return (conclude(message) for message in messages(cleaning_round.perform))

    def begin_swap(self, group: CleanedGroup) -> SegmentSwap:
        """The swap of a copy, of which no step is done."""
        swap = self.log.begin_swap(group.base_offsets, group.sizes, group.modified_ms)
        assert swap is not None
        return swap

    def swap(self, group: CleanedGroup) -> None:
        """Put a copy in the place of its segments."""
        swap = self.begin_swap(group)
        swap.prepare()
        removals = self.log.swap_in(swap)
        assert removals is not None
        swap.sync()
        self.log.end_swap(swap)
        for removal in removals:
            removal.perform()

    def clean(self, limits: CleanerLimits = LIMITS) -> CleaningReport:
        """A whole round."""
        report = None
        for result in self.copies(limits):
            if isinstance(result, CleanedGroup):
                self.swap(result)
            else:
                report = result
        assert report is not None
        self.log.cleaned_to = report.cleaned_to
        return report

    # Reading ----------------------------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """All records of the log but markers, whatever became of their transactions."""
        return [
            one for header, data in self.log.batches() if not header.is_control for one in iterate_records(data)
        ]  # fmt: skip

    def pairs(self) -> list[Pair]:
        """Keys and values of `records`."""
        return [(one.key, one.value) for one in self.records()]

    def committed(self, from_offset: int = 0) -> list[Record]:
        """What a consumer with read_committed gets from an offset on, by fetches of a few batches."""
        found: list[Record] = []
        offset, log = from_offset, self.log
        while offset < log.last_stable_offset:
            read = log.read(
                offset, max_bytes=500, upper_bound_offset=log.last_stable_offset, at_least_one_batch=True
            )  # fmt: skip
            if read.region is None:
                break
            aborted = sorted(log.aborted_transactions(offset, read), key=lambda one: one.first_offset)
            undone: set[int] = set()
            data = read.region.read()
            for header, _, batch in BatchWalk(in_memory(data), 0, len(data)):
                while aborted and aborted[0].first_offset <= header.last_offset:
                    undone.add(aborted.pop(0).producer_id)
                if header.is_control:
                    undone.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in undone):
                    found += (one for one in iterate_records(batch) if one.offset >= offset)
                offset = max(offset, header.next_offset)
        return found

    def bytes_of_segments(self) -> dict[str, bytes]:
        """The files of batches."""
        return {name: self.home.bytes_of(name) for name in self.home.names() if name.endswith(".log")}


class Keyed(Protocol):
    """A record, as storage or as a client has it."""

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...


def table(records: Iterable[Keyed]) -> dict[bytes, bytes]:
    """The last value of each key."""
    found: dict[bytes, bytes] = {}
    for one in records:
        assert one.key is not None
        found.pop(one.key, None)
        if one.value is not None:
            found[one.key] = one.value
    return found
