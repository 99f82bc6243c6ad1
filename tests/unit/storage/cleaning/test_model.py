"""Any sequence of writes, transactions, rolls, cleanings, crashes and restarts, beside a model of what was written."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from storage.batch.record_batch import Codec
from storage.batch.records import Record
from tests.support.cleaning import COMPACTED, LIMITS, CompactedLog, Pair, table

RETENTION_MS = 1000
KEYS = st.sampled_from([b"a", b"b", b"c"])
VALUES = st.sampled_from([b"1", b"2", b"a longer value, so that segments fill", None])
CONTENTS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)
PRODUCERS = st.sampled_from([7, 8])


class CompactedLogMachine(RuleBasedStateMachine):
    """The log, all records that were ever written to it, and a reader who looks often enough."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        config = COMPACTED.replace(delete_retention_ms=RETENTION_MS, min_cleanable_dirty_ratio=0.0)
        self.orders = CompactedLog.make(Path(self._directory.name), config)
        self.written: dict[int, Record] = {}
        self.undecided: dict[int, list[int]] = {}
        """By producer: the offsets of its open transaction."""
        self.aborted: set[int] = set()
        """The offsets of aborted records."""
        self.reader: list[Record] = []
        """What the reader has got."""
        self.read_to = 0
        self.read_ms = self.orders.home.now_ms

    def teardown(self) -> None:
        self.orders.log.abandon()
        self._directory.cleanup()

    def note(self, first_offset: int, pairs: list[Pair]) -> list[int]:
        offsets = list(range(first_offset, first_offset + len(pairs)))
        for offset, (key, value) in zip(offsets, pairs, strict=True):
            timestamp = self.orders.home.now_ms + offset - first_offset
            self.written[offset] = Record(offset=offset, timestamp=timestamp, key=key, value=value)
        return offsets

    # Rules ------------------------------------------------------------------------------------------------------------

    @rule(pairs=CONTENTS, codec=st.sampled_from([Codec.NONE, Codec.GZIP]))
    def write(self, pairs: list[Pair], codec: Codec) -> None:
        self.note(self.orders.write(*pairs, codec=codec), pairs)

    @rule(pairs=CONTENTS)
    def write_idempotent(self, pairs: list[Pair]) -> None:
        self.note(self.orders.write(*pairs, producer_id=9), pairs)

    @rule(pairs=CONTENTS, producer_id=PRODUCERS)
    def write_in_transaction(self, pairs: list[Pair], producer_id: int) -> None:
        first_offset = self.orders.write(*pairs, producer_id=producer_id, is_transactional=True)
        self.undecided.setdefault(producer_id, []).extend(self.note(first_offset, pairs))

    @precondition(lambda self: self.undecided)
    @rule(data=st.data(), commit=st.booleans())
    def end_transaction(self, data: st.DataObject, commit: bool) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.undecided)))
        self.orders.end_transaction(producer_id, commit=commit)
        offsets = self.undecided.pop(producer_id)
        if not commit:
            self.aborted.update(offsets)

    @rule()
    def roll(self) -> None:
        self.orders.roll()

    @rule(most_keys=st.sampled_from([2, 50]))
    def clean(self, most_keys: int) -> None:
        self.orders.roll()
        self.orders.clean(LIMITS._replace(map_bytes=24 * (most_keys + 1), map_load_factor=1.0))
        self.check_table()

    @rule()
    def clean_three_times(self) -> None:
        self.orders.roll()
        for _ in range(2):
            self.orders.log.cleaned_to = 0
            self.orders.clean()
        before, segments = self.orders.records(), self.orders.bytes_of_segments()
        self.orders.log.cleaned_to = 0
        self.orders.clean()
        assert self.orders.records() == before
        assert b"".join(self.orders.bytes_of_segments().values()) == b"".join(segments.values())
        self.check_table()

    @rule(by_ms=st.integers(1, 2 * RETENTION_MS))
    def let_time_pass(self, by_ms: int) -> None:
        if self.orders.home.now_ms + by_ms - self.read_ms >= RETENTION_MS:
            self.read()
        by_ms = min(by_ms, RETENTION_MS - 1)
        self.orders.home.now_ms += by_ms

    @rule()
    def read(self) -> None:
        self.reader += self.orders.committed(self.read_to)
        self.read_to = max(self.read_to, self.orders.log.last_stable_offset)
        self.read_ms = self.orders.home.now_ms
        self.check_table()

    @rule(clean=st.booleans())
    def start_again(self, clean: bool) -> None:
        end_offset = self.orders.log.log_end_offset
        if clean:
            assert self.orders.verified() == []
        else:
            self.orders.reopen(clean=False)
        assert self.orders.log.log_end_offset == end_offset

    # What holds -------------------------------------------------------------------------------------------------------

    def committed_before(self, end_offset: int) -> list[Record]:
        return [one for offset, one in self.written.items() if offset < end_offset and offset not in self.aborted]

    def check_table(self) -> None:
        """The cleaned log read from the start gives the table that all records give, and so does the reader's."""
        stable = self.orders.log.last_stable_offset
        expected = table(self.committed_before(stable))
        assert table(self.orders.committed()) == expected
        if self.read_to == stable:
            assert table(self.reader) == expected

    @invariant()
    def no_offset_has_changed_its_record(self) -> None:
        for one in self.orders.records():
            assert one == self.written[one.offset]

    @invariant()
    def the_last_record_of_each_key_is_there(self) -> None:
        last = {one.key: one for one in self.committed_before(self.orders.log.last_stable_offset)}
        there = {one.offset for one in self.orders.records()}
        assert all(one.offset in there for one in last.values() if one.value is not None)


TestCompactedLog = CompactedLogMachine.TestCase
TestCompactedLog.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
