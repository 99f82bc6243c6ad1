"""A log with known records, timestamps and aborted transactions; ways to damage its files; and checks of what it
returns then."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from storage.batch.record_batch import read_header
from storage.file_names import LOG_SUFFIX
from storage.index.transaction_index import AbortedTransaction
from storage.log import Log
from storage.segment import Segment
from tests.support.logs import LogHome, T, batch_of, headers_in, marker

ALL = 1 << 40
RECORDS = 145


@dataclass
class KnownLog:
    """The content of a log of several segments, by offset. Its process has ended, cleanly or not."""

    home: LogHome
    bases: tuple[int, ...] = ()
    values: dict[int, bytes] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    log: Log = field(init=False)
    lines: list[str] = field(default_factory=list)
    """The lines about damage that the last start, and reads after it, have logged."""

    @classmethod
    def stopped(cls, home: LogHome, *, clean: bool) -> "KnownLog":
        """Write a log, and stop it cleanly or abandon it."""
        home.config = home.config.replace(segment_bytes=3000, index_interval_bytes=200)
        known = cls(home)
        log = home.open()
        log.assign_epoch_start(0)
        sequence = 0
        while log.log_end_offset < RECORDS:
            offset = log.log_end_offset
            if offset % 10 == 8:
                home.append(log, batch_of(b"gone", producer_id=8, sequence=offset // 10, timestamp=T + offset,
                                          is_transactional=True))  # fmt: skip
                log.stage_trusted(marker(8, commit=False, timestamp=T + offset + 1), leader_epoch=0)
                log.append_all(T)
                log.advance_high_watermark(log.log_end_offset)
                known.values[offset] = b"gone"
                known.aborted.append(AbortedTransaction(8, offset, offset + 1, offset + 2))
            else:
                value = b"record %d" % offset
                home.append(log, batch_of(value, producer_id=7, sequence=sequence, timestamp=T + offset))
                known.values[offset] = value
                sequence += 1
        known.bases = log.segments.bases
        assert len(known.bases) >= 4
        if clean:
            log.close(T)
        else:
            log.flush(T)
            log.abandon()
        return known

    @property
    def last_sequence(self) -> int:
        return sum(value != b"gone" for value in self.values.values()) - 1

    def path(self, base_offset: int, suffix: str) -> Path:
        return Path(self.home.directory) / f"{base_offset:020d}{suffix}"

    def batch_positions(self, base_offset: int) -> list[int]:
        """The positions of the batches in a segment."""
        positions, position = [], 0
        for header in headers_in(self.path(base_offset, LOG_SUFFIX).read_bytes()):
            positions.append(position)
            position += header.size
        return positions

    def start(self, **how: int | bool) -> Log:
        """Open the log again; what it logs about damage is added to `lines`, now and later."""
        self.log = self.home.open(high_watermark=ALL, **how)  # type: ignore[arg-type]
        self.lines = self.home.report.findings
        for segment in self.log.segments:
            segment.files.on_repair = self.lines.append
        return self.log

    def lines_about(self, name: str) -> list[str]:
        return [line for line in self.lines if name in line]

    def check(self, *, lost: range = range(0)) -> None:
        """Check that every record but those lost is found by its offset and by its timestamp, and no other record
        is."""
        log = self.log
        for offset in range(log.log_start_offset, log.log_end_offset):
            wanted = offset
            while wanted in lost:
                wanted += 1
            read = log.read(offset, max_bytes=1, upper_bound_offset=ALL, at_least_one_batch=True)
            if read.region is None:
                assert wanted >= log.log_end_offset, f"offset {offset} gives nothing"
                continue
            assert read_header(read.region.read()).base_offset == wanted, f"offset {offset}"
            found = log.offset_for_timestamp(T + offset, ALL)
            assert found is not None
            assert (found.timestamp, found.offset) == (T + wanted, wanted)
        last = max(set(range(log.log_start_offset, log.log_end_offset)) - set(lost), default=None)
        found = log.offset_of_max_timestamp()
        assert (None if found is None else found.offset) == last
        for number, segment in enumerate(log.segments):
            end = log.segments.end_of(segment, log.log_end_offset)
            kept = set(range(segment.base_offset, end)) - set(lost)
            if kept:
                assert segment.largest == (T + max(kept), max(kept)), f"segment {number}"
        self.check_transactions(lost=lost)

    def check_transactions(self, *, lost: range = range(0)) -> None:
        """Check that a reader of committed records is given exactly the aborted transactions."""
        log = self.log
        told = set()
        for base_offset in log.segments.bases:
            read = log.read(base_offset, max_bytes=ALL, upper_bound_offset=ALL, at_least_one_batch=True)
            told.update(log.aborted_transactions(base_offset, read))
        expected = {t for t in self.aborted if t.last_offset < log.log_end_offset and t.first_offset not in lost
                    and t.last_offset not in lost}  # fmt: skip
        assert told >= expected
        assert told <= set(self.aborted)


Damage = Callable[[bytes], bytes | None]
"""Maps a file's content to damaged content; None: the file is removed."""


def damage(path: Path, how: Damage) -> None:
    """Damage a file."""
    content = how(path.read_bytes())
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


def break_batch(path: Path, number: int) -> tuple[int, int]:
    """Change the last byte of a batch in a segment's file. Returns position and base offset of that batch."""
    content, position = bytearray(path.read_bytes()), 0
    for _ in range(number):
        position += read_header(content, position).size
    header = read_header(content, position)
    content[position + header.size - 1] ^= 1
    path.write_bytes(content)
    return position, header.base_offset


def segment_at(log: Log, base_offset: int) -> Segment:
    """The segment with this base offset."""
    return next(segment for segment in log.segments if segment.base_offset == base_offset)
