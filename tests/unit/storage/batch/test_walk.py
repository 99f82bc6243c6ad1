"""Walking batch after batch: what each policy gives, where it ends and what it says, for every kind of damage."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from storage.batch.record_batch import HEADER_SIZE, MAGIC
from storage.batch.walk import AtFault, BatchFault, BatchWalk, StoredBatch, WalkPolicy, find_batch, in_memory
from storage.errors import CorruptBatch
from tests.support.batches import changed, stored

BATCHES = [stored(2, offset=2 * number) for number in range(6)]
SIZE = len(BATCHES[0])
VICTIM = 3
AT = VICTIM * SIZE
GOOD = b"".join(BATCHES)

PLAIN = WalkPolicy()
CHECKED = WalkPolicy(checks_crc=True, checks_offsets=True)
STEPPING = WalkPolicy(checks_crc=True, checks_offsets=True, at_fault=AtFault.STEP_OVER)
RAISING = WalkPolicy(checks_crc=True, checks_offsets=True, at_fault=AtFault.RAISE)
HEADERS = WalkPolicy(checks_offsets=True, reads_records=False)


class Damage(NamedTuple):
    """What is done to the batch at `AT`, or to the end, and what is said of it."""

    content: bytes
    fault: BatchFault
    problem: str
    stepped: str | None
    """How the walk that steps over goes on; None where it cannot."""
    passes: tuple[WalkPolicy, ...] = ()
    """Policies that do not see it."""


def put(at: int, new: bytes | memoryview) -> bytes:
    return GOOD[: AT + at] + new + GOOD[AT + at + len(new) :]


def number(value: int, size: int = 4) -> bytes:
    return value.to_bytes(size, "big", signed=True)


AFTER = f"the next batch stands at position {AT + SIZE}"
LOST = f"; offsets {2 * VICTIM} to {2 * VICTIM + 1} cannot be read, {AFTER}"
LEFT_SO = "; it is left so"

DAMAGES = {
    "magic 0": Damage(put(16, b"\0"), BatchFault.MAGIC, "there is magic 0 where a batch of magic 2 is", LOST),
    "magic 1": Damage(put(16, b"\1"), BatchFault.MAGIC, "there is magic 1 where a batch of magic 2 is", LOST),
    "magic 7": Damage(put(16, b"\7"), BatchFault.MAGIC, "there is magic 7 where a batch of magic 2 is", LOST),
    "a length of 0": Damage(put(8, number(0)), BatchFault.LENGTH, "says that it has 12 bytes, fewer than", LOST),
    "a negative length": Damage(put(8, number(-1)), BatchFault.LENGTH, "says that it has 11 bytes, fewer than", LOST),
    "a length one short of a header": Damage(
        put(8, number(48)), BatchFault.LENGTH, "says that it has 60 bytes, fewer than its header", LOST
    ),
    "a huge length": Damage(
        put(8, number(2**31 - 1)), BatchFault.TORN, f"has {3 * SIZE} of its 2147483659 bytes", LOST
    ),
    "a wrong CRC": Damage(
        put(17, bytes(4)), BatchFault.CRC, "names the CRC 00000000, and its bytes have", LEFT_SO, (PLAIN, HEADERS)
    ),
    "other records": Damage(put(70, b"\xee"), BatchFault.CRC, "names the CRC", LEFT_SO, (PLAIN, HEADERS)),
    "an offset that goes back": Damage(
        put(0, number(1, 8)), BatchFault.OFFSETS, "has offsets 1 to 2, expected some from 6 to 99", LOST, (PLAIN,)
    ),
    "an offset out of reach": Damage(
        put(0, number(99, 8)), BatchFault.OFFSETS, "has offsets 99 to 100, expected some from 6 to 99", LOST, (PLAIN,)
    ),
    "offsets that fall": Damage(
        put(0, changed(BATCHES[VICTIM], last_offset_delta=-2)),
        BatchFault.OFFSETS, "has offsets 6 to 4, expected some from 6 to 99", LOST, (PLAIN,)
    ),
    "zeros in its place": Damage(put(0, bytes(SIZE)), BatchFault.MAGIC, "there are zeros where a batch is", LOST),
    "zeros at the end": Damage(GOOD[:AT] + bytes(300), BatchFault.MAGIC, "there are zeros where a batch is", None),
    "a few zeros at the end": Damage(
        GOOD[:AT] + bytes(60), BatchFault.HEADER, "the last 60 bytes are less than the header of a batch", None
    ),
    "a header that is cut off": Damage(
        GOOD[: AT + 60], BatchFault.HEADER, "the last 60 bytes are less than the header of a batch", None
    ),
    "records that are cut off": Damage(
        GOOD[: AT + SIZE - 1], BatchFault.TORN, f"has {SIZE - 1} of its {SIZE} bytes", None
    ),
}  # fmt: skip


@pytest.fixture(params=[1 << 20, 200, HEADER_SIZE, 1], ids="read {} bytes at once".format)
def walk(request: pytest.FixtureRequest) -> Callable[..., BatchWalk]:
    def begin(content: bytes, policy: WalkPolicy, **bounds: int) -> BatchWalk:
        bounds = {"most_offset": 99} | bounds
        return BatchWalk(in_memory(content), 0, len(content), policy, chunk_bytes=request.param, **bounds)

    return begin


def positions(batches: list[StoredBatch]) -> list[int]:
    return [batch.position for batch in batches]


EVERY_POLICY = pytest.mark.parametrize(
    "policy", [PLAIN, CHECKED, STEPPING, RAISING, HEADERS],
    ids=["plain", "checked", "stepping over", "raising", "headers"],
)  # fmt: skip
EVERY_DAMAGE = pytest.mark.parametrize("what", DAMAGES)


@EVERY_POLICY
def test_whole_batches_are_given_one_by_one(walk: Callable[..., BatchWalk], policy: WalkPolicy) -> None:
    under_way = walk(GOOD, policy)
    given = list(under_way)

    assert [batch.header.base_offset for batch in given] == [0, 2, 4, 6, 8, 10]
    assert positions(given) == [SIZE * number for number in range(6)]
    assert [bytes(batch.data) for batch in given] == [
        each if policy.reads_records else each[:HEADER_SIZE] for each in BATCHES
    ]
    assert (under_way.position, under_way.fault, under_way.problem, under_way.damage) == (len(GOOD), None, "", [])


@EVERY_POLICY
def test_of_nothing_nothing_is_given(walk: Callable[..., BatchWalk], policy: WalkPolicy) -> None:
    under_way = walk(b"", policy)

    assert list(under_way) == []
    assert under_way.fault is None


@EVERY_DAMAGE
@pytest.mark.parametrize("policy", [PLAIN, CHECKED, HEADERS], ids=["plain", "checked", "headers"])
def test_a_walk_stops_before_the_first_that_is_no_batch(
    walk: Callable[..., BatchWalk], policy: WalkPolicy, what: str
) -> None:
    damage = DAMAGES[what]
    under_way = walk(damage.content, policy)
    given = list(under_way)

    if policy in damage.passes:
        assert len(given) == len(BATCHES)
        return
    assert positions(given) == [0, SIZE, 2 * SIZE]
    assert under_way.position == AT
    assert under_way.fault is damage.fault
    assert damage.problem in under_way.problem


@EVERY_DAMAGE
def test_a_walk_raises_what_is_no_batch_and_stops_where_the_bytes_only_end(
    walk: Callable[..., BatchWalk], what: str
) -> None:
    damage = DAMAGES[what]
    under_way = walk(damage.content, RAISING)
    given = []
    if damage.fault in (BatchFault.HEADER, BatchFault.TORN):
        given.extend(under_way)
        assert under_way.fault is damage.fault
    else:
        with pytest.raises(CorruptBatch, match=f"position {AT}: .*{damage.problem}"):
            given.extend(under_way)
    assert positions(given) == [0, SIZE, 2 * SIZE]


@EVERY_DAMAGE
def test_a_walk_steps_over_what_is_no_batch_and_says_so(walk: Callable[..., BatchWalk], what: str) -> None:
    damage = DAMAGES[what]
    under_way = walk(damage.content, STEPPING)
    given = positions(list(under_way))

    if damage.stepped is None:
        assert given == [0, SIZE, 2 * SIZE]
        assert (under_way.position, under_way.fault, under_way.damage) == (AT, damage.fault, [])
        return
    assert given == [0, SIZE, 2 * SIZE, 4 * SIZE, 5 * SIZE]
    assert (under_way.position, under_way.fault) == (len(GOOD), None)
    (sentence,) = under_way.damage
    assert sentence.startswith(f"position {AT}")
    assert damage.problem in sentence
    assert sentence.endswith(damage.stepped)


@EVERY_DAMAGE
def test_a_walk_that_steps_over_stops_from_the_durable_offset_on(walk: Callable[..., BatchWalk], what: str) -> None:
    damage = DAMAGES[what]
    under_way = walk(damage.content, STEPPING, durable_offset=2 * VICTIM)

    assert positions(list(under_way)) == [0, SIZE, 2 * SIZE]
    assert (under_way.position, under_way.next_offset, under_way.damage) == (AT, 2 * VICTIM, [])
    assert under_way.fault is damage.fault


def test_the_header_of_what_stands_there_is_kept(walk: Callable[..., BatchWalk]) -> None:
    under_way = walk(DAMAGES["magic 7"].content, CHECKED)
    list(under_way)

    assert under_way.header is not None
    assert (under_way.header.magic, under_way.header.base_offset) == (7, 2 * VICTIM)


def test_a_file_that_has_become_shorter_ends_the_walk_where_it_ends() -> None:
    under_way = BatchWalk(in_memory(GOOD), 0, 2 * len(GOOD), CHECKED)

    assert len(list(under_way)) == len(BATCHES)
    assert (under_way.end, under_way.fault) == (len(GOOD), None)


def test_what_is_passed_over_is_neither_looked_at_nor_given() -> None:
    def pass_over(chunk: bytes, at: int, position: int) -> int:
        assert content.startswith(chunk[at:], position)
        while position in (0, SIZE, 4 * SIZE) and len(chunk) - at >= SIZE:
            at += SIZE
            position += SIZE
        return at

    content = b"\7" * SIZE + GOOD[SIZE:]
    under_way = BatchWalk(in_memory(content), 0, len(content), PLAIN, chunk_bytes=3 * SIZE, pass_over=pass_over)

    assert positions(list(under_way)) == [2 * SIZE, 3 * SIZE, 5 * SIZE]


def test_chunks_may_be_dealt_with_by_a_loop_of_its_own(walk: Callable[..., BatchWalk]) -> None:
    under_way = walk(DAMAGES["zeros in its place"].content, STEPPING)
    taken, searches = [], 0
    while chunk := under_way.read_chunk():
        at = 0
        while len(chunk) - at >= SIZE and chunk[at + 16] == MAGIC:
            taken.append(under_way.position + at)
            at += SIZE
        under_way.next_offset += 2 * (at // SIZE)
        searches += under_way.took(at)

    assert taken == [0, SIZE, 2 * SIZE, 4 * SIZE, 5 * SIZE]
    assert searches == 1


@pytest.mark.parametrize("begin", [0, 1, SIZE - 1, SIZE])
def test_the_next_batch_is_found_from_anywhere(begin: int) -> None:
    found = find_batch(in_memory(GOOD), begin, len(GOOD), len(GOOD), next_offset=0, most_offset=99)

    assert found is not None
    assert found[0] == (0 if begin == 0 else SIZE)


def test_no_batch_is_found_that_begins_at_the_stop_or_whose_offsets_do_not_fit() -> None:
    read = in_memory(GOOD)

    assert find_batch(read, 1, SIZE, len(GOOD), next_offset=0, most_offset=99) is None
    assert find_batch(read, 1, len(GOOD), len(GOOD), next_offset=12, most_offset=99) is None
    assert find_batch(read, 1, len(GOOD), len(GOOD), next_offset=0, most_offset=2) is None
