"""Producer ids: none twice, none before its block is durable, the next block in time."""

from broker.metadata.producer_ids import BLOCK_SIZE, ProducerIds
from storage.errors import DiskFull


def fails(error):
    raise AssertionError("a block is to be had") from error


class Blocks:
    """Gives blocks when it is told to, as the metadata log does when they are durable."""

    def __init__(self):
        self.asked = []
        self.given = 0

    def __call__(self, then, failed):
        self.asked.append(then)

    def give(self):
        first = self.given * BLOCK_SIZE
        self.given += 1
        self.asked.pop(0)(range(first, first + BLOCK_SIZE))


def test_nobody_gets_an_id_before_the_first_block_is_durable():
    blocks, got = Blocks(), []
    producer_ids = ProducerIds(blocks)

    producer_ids.assign(got.append, fails)
    producer_ids.assign(got.append, fails)
    assert got == []
    assert len(blocks.asked) == 1

    blocks.give()
    producer_ids.assign(got.append, fails)

    assert got == [0, 1, 2]


def test_the_next_block_is_asked_for_when_nine_tenths_are_used():
    blocks, got = Blocks(), []
    producer_ids = ProducerIds(blocks)
    producer_ids.assign(got.append, fails)
    blocks.give()

    while len(got) < 899:
        producer_ids.assign(got.append, fails)
    assert blocks.asked == []
    producer_ids.assign(got.append, fails)

    assert len(blocks.asked) == 1


def test_ids_go_on_without_a_gap_into_the_next_block():
    blocks, got = Blocks(), []
    producer_ids = ProducerIds(blocks)
    for _ in range(2500):
        producer_ids.assign(got.append, fails)
        while blocks.asked:
            blocks.give()

    assert got == list(range(2500))


def test_those_who_wait_are_served_in_their_order_when_the_block_comes():
    blocks, got = Blocks(), []
    producer_ids = ProducerIds(blocks)
    for number in range(BLOCK_SIZE + 5):
        producer_ids.assign(lambda producer_id, number=number: got.append((number, producer_id)), fails)

    blocks.give()
    assert len(got) == BLOCK_SIZE
    blocks.give()

    assert got == [(number, number) for number in range(BLOCK_SIZE + 5)]


def test_without_room_for_a_block_whoever_waits_is_told_and_the_next_one_may_have_more_luck():
    blocks, got, told = Blocks(), [], []

    def allocate(then, failed):
        if not blocks.given and not told:
            failed(DiskFull("no room"))
        else:
            blocks(then, failed)

    producer_ids = ProducerIds(allocate)
    producer_ids.assign(got.append, told.append)
    assert (got, [str(error) for error in told]) == ([], ["no room"])

    producer_ids.assign(got.append, fails)
    blocks.give()

    assert got == [0]


def test_a_block_that_is_not_needed_yet_fails_nobody():
    blocks, got = Blocks(), []
    has_room = True

    def allocate(then, failed):
        if has_room:
            blocks(then, failed)
        else:
            failed(DiskFull("no room"))

    producer_ids = ProducerIds(allocate)
    producer_ids.assign(got.append, fails)
    blocks.give()
    has_room = False
    for _ in range(BLOCK_SIZE - 1):
        producer_ids.assign(got.append, fails)

    assert got == list(range(BLOCK_SIZE))
