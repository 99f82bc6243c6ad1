"""Committed offsets of a group: its next consumer begins there, also after restarts and kills."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dev.waiting import until
from tests.end_to_end.conftest import Shared
from tests.support.clients import Client, Committed, Place, Record, RequestFailed
from tests.support.clients.members import SeenMember, places, wait_for

UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_METADATA_TOO_LARGE = 12
UNKNOWN_MEMBER_ID = 25


def numbered(first: int, count: int) -> list[Record]:
    """Records for four partitions in turns."""
    return [Record(value=b"%d" % number, partition=number % 4) for number in range(first, first + count)]


def test_a_consumer_that_closes_has_committed_what_it_read(
    client: Client, four: str, group: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    client.produce(four, numbered(0, 7))
    member = join()
    shared(places(four, 4), [member])
    wait_for("receiving 7 records", lambda: len(member.seen.values) == 7, [member])

    member.close()

    assert client.committed(group, places(four, 4)) == {
        Place(four, 0): Committed(2),
        Place(four, 1): Committed(2),
        Place(four, 2): Committed(2),
        Place(four, 3): Committed(1),
    }
    client.produce(four, numbered(7, 1))
    another = join()
    wait_for("receiving one more", lambda: len(another.seen.values) >= 1, [another])
    assert another.seen.values == [b"7"]


def test_a_synchronous_commit_counts_from_its_answer_on(
    client: Client, four: str, group: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    client.produce(four, numbered(0, 8))
    member = join(commits="never")
    wait_for("receiving 8 records", lambda: len(member.seen.values) == 8, [member])
    assert client.committed(group, places(four, 4)) == {}

    member.commit()

    assert client.committed(group, places(four, 4)) == {place: Committed(2) for place in places(four, 4)}
    assert member.seen.committed == dict.fromkeys(places(four, 4), 2)


def test_what_was_read_and_not_committed_is_read_again(
    client: Client, four: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    client.produce(four, numbered(0, 4))
    member = join(commits="never")
    shared(places(four, 4), [member])
    wait_for("receiving", lambda: len(member.seen.values) == 4, [member])
    member.commit()
    client.produce(four, numbered(4, 4))
    wait_for("receiving more", lambda: len(member.seen.values) == 8, [member])
    member.close()

    another = join()

    wait_for("receiving again", lambda: len(another.seen.values) >= 4, [another])
    assert sorted(value or b"" for value in another.seen.values) == [b"4", b"5", b"6", b"7"]


def test_a_paused_partition_is_read_no_further_and_stays_with_its_member(
    client: Client, four: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    member = join()
    shared(places(four, 4), [member])
    rebalances = member.seen.rebalances

    member.pause([Place(four, 0), Place(four, 1)])
    client.produce(four, numbered(0, 40))
    wait_for("reading what is not paused", lambda: len(member.seen.values) == 20, [member])
    assert {record.partition for record in member.seen.received} == {2, 3}

    member.resume([Place(four, 0), Place(four, 1)])
    wait_for("reading the rest", lambda: len(member.seen.values) == 40, [member])
    assert member.seen.rebalances == rebalances


# Without being a member


def test_whoever_assigns_by_hand_may_commit_and_leave_a_remark(client: Client, four: str, group: str) -> None:
    offsets = {Place(four, 0): Committed(3, "as far as “three”"), Place(four, 2): Committed(0)}

    client.commit(group, offsets)

    assert client.committed(group, places(four, 4)) == offsets
    assert client.describe_group(group).state == "Empty"


def test_all_clients_see_the_same_offsets(client: Client, every_client: list[Client], four: str, group: str) -> None:
    # Without remarks: confluent-kafka writes and reads them with a zero at their end, which the others do not have.
    offsets = {Place(four, number): Committed(number) for number in range(4)}

    client.commit(group, offsets)

    for other in every_client:
        assert other.committed(group, places(four, 4)) == offsets, other.name


def test_a_group_that_nobody_knows_has_no_offsets(client: Client, four: str, group: str) -> None:
    assert client.committed(group, places(four, 4)) == {}
    assert client.describe_group(group).state == "Dead", "the question has made it"


def test_a_remark_that_is_too_long_is_refused_and_the_offset_before_it_stands(
    client: Client, four: str, group: str
) -> None:
    longest = 4_096 - (client.name == "confluent-kafka")  # it sends the zero behind its text too
    client.commit(group, {Place(four, 0): Committed(1, "é" * longest)})

    with pytest.raises(RequestFailed) as refused:
        client.commit(group, {Place(four, 0): Committed(2, "é" * (longest + 1))})

    assert refused.value.code == OFFSET_METADATA_TOO_LARGE
    assert client.committed(group, [Place(four, 0)]) == {Place(four, 0): Committed(1, "é" * longest)}


def test_a_partition_that_is_not_there_has_no_offset_to_commit(client: Client, four: str, group: str) -> None:
    if client.name != "confluent-kafka":
        pytest.skip(f"{client.name} takes the partition for one to come, and asks again and again")
    with pytest.raises(RequestFailed) as refused:
        client.commit(group, {Place(four, 4): Committed(1)})

    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION
    assert client.committed(group, [Place(four, 4)]) == {}


def test_nobody_commits_from_outside_while_the_group_has_members(
    client: Client, four: str, group: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    member = join(commits="after each poll")
    shared(places(four, 4), [member])
    client.produce(four, numbered(0, 4))
    wait_for("committing", lambda: len(member.seen.committed) == 4, [member])

    with pytest.raises(RequestFailed) as refused:
        client.commit(group, {Place(four, 0): Committed(0)})

    assert refused.value.code == UNKNOWN_MEMBER_ID
    assert client.committed(group, [Place(four, 0)]) == {Place(four, 0): Committed(1)}


def test_a_group_without_members_may_be_set_back(
    client: Client, four: str, group: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    client.produce(four, numbered(0, 8))
    member = join(commits="after each poll")
    wait_for("committing", lambda: sum(member.seen.committed.values()) == 8, [member])
    member.close()

    client.commit(group, {Place(four, 1): Committed(0)})

    again = join()
    wait_for("reading again", lambda: len(again.seen.values) >= 2, [again])
    shared(places(four, 4), [again])
    assert again.seen.values == [b"1", b"5"]


def test_with_its_topic_a_groups_offsets_go(client: Client, four: str, group: str) -> None:
    other = f"other-{four}"
    client.create_topic(other)
    client.commit(group, {Place(four, 0): Committed(1), Place(four, 3): Committed(2), Place(other, 0): Committed(0)})

    client.delete_topic(four)

    until(lambda: not client.committed(group, places(four, 4)), f"the end of the offsets for {four}")
    assert client.committed(group, [Place(other, 0)]) == {Place(other, 0): Committed(0)}
    client.create_topic(four, partitions=4)
    assert client.committed(group, places(four, 4)) == {}
