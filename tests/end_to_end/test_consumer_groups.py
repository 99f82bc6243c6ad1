"""The members of a group share its partitions, and hand them over when one comes, goes or dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.end_to_end.conftest import Shared
from tests.support.clients import Client, Record
from tests.support.clients.member_process import MemberProcess
from tests.support.clients.members import Revoked, Seen, SeenMember, places, wait_for, wait_until_shared

SESSION_TIMEOUT_MS = 3_000
"""The least that the broker of these tests allows."""


def numbered(first: int, count: int) -> list[Record]:
    """Records for four partitions in turns."""
    return [Record(value=b"%d" % number, partition=number % 4) for number in range(first, first + count)]


def numbers(count: int) -> set[bytes | None]:
    return {b"%d" % number for number in range(count)}


def read_by(*members: Seen) -> list[bytes | None]:
    return [value for member in members for value in member.seen.values]


def test_members_with_the_clients_own_settings_share_the_partitions_and_read_everything(
    client: Client, four: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    client.produce(four, numbered(0, 20))
    one = join(heartbeat_ms=None)
    wait_for("reading what is there", lambda: set(read_by(one)) == numbers(20), [one])
    another = join(heartbeat_ms=None)
    shared(places(four, 4), [one, another])

    client.produce(four, numbered(20, 20))

    wait_for("reading", lambda: set(read_by(one, another)) == numbers(40), [one, another])
    assert {record.partition for record in another.seen.received} == {p.partition for p in another.seen.assignment}


def test_in_a_group_that_nobody_joins_or_leaves_every_record_is_read_once(
    client: Client, four: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    members = [join(), join()]
    shared(places(four, 4), [*members])

    client.produce(four, numbered(0, 400))

    wait_for("reading 400 records", lambda: len(read_by(*members)) >= 400, members)
    assert Counter(read_by(*members)) == Counter(numbers(400))


def test_a_member_more_than_there_are_partitions_waits_and_takes_over(
    client: Client, new_topic: Callable[..., str], join: Callable[..., SeenMember], shared: Shared
) -> None:
    topic = new_topic(partitions=2)
    members = [join() for _ in range(3)]
    shared(places(topic, 2), [*members])
    (idle,) = [member for member in members if not member.seen.assignment]
    one, another = [member for member in members if member is not idle]

    one.close()

    shared(places(topic, 2), [another, idle])
    client.produce(topic, [Record(value=b"a", partition=0), Record(value=b"b", partition=1)])
    wait_for("reading", lambda: set(read_by(another, idle)) == {b"a", b"b"}, [another, idle])
    assert len(idle.seen.values) == 1


def test_members_come_and_go(client: Client, four: str, join: Callable[..., SeenMember], shared: Shared) -> None:
    everything = places(four, 4)
    one = join()
    shared(everything, [one])
    two, three = join(), join()
    shared(everything, [one, two, three])
    one.close()
    shared(everything, [two, three])
    two.close()
    shared(everything, [three])

    client.produce(four, numbered(0, 20))

    wait_for("reading", lambda: set(read_by(three)) == numbers(20), [three])
    assert not read_by(one, two)


def test_the_partitions_of_a_member_that_dies_go_to_the_others_when_its_session_is_over(
    client: Client,
    four: str,
    join: Callable[..., SeenMember],
    start_process: Callable[..., MemberProcess],
    shared: Shared,
) -> None:
    survivor = join(session_timeout_ms=SESSION_TIMEOUT_MS, commits="after each poll")
    doomed = start_process(session_timeout_ms=SESSION_TIMEOUT_MS, commits="after each poll")
    both: list[Seen] = [survivor, doomed]
    shared(places(four, 4), both)
    client.produce(four, numbered(0, 20))
    wait_for("reading", lambda: set(read_by(*both)) == numbers(20), both)
    wait_for(
        "committing", lambda: sum((*survivor.seen.committed.values(), *doomed.seen.committed.values())) == 20, both
    )

    doomed.kill()

    shared(places(four, 4), [survivor])
    client.produce(four, numbered(20, 20))
    wait_for("reading", lambda: set(read_by(*both)) == numbers(40), [survivor])
    assert len(doomed.seen.committed) == 2
    assert len(read_by(survivor)) == 30, "it has read again what the dead one had committed"


def test_a_cooperative_member_keeps_what_it_need_not_give_away(
    client: Client, four: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    if client.name == "aiokafka":
        pytest.skip("aiokafka has no cooperative assignor")
    one = join(assignor="cooperative-sticky")
    shared(places(four, 4), [one])

    another = join(assignor="cooperative-sticky")
    shared(places(four, 4), [one, another])

    given_away = [place for event in one.seen.events if isinstance(event, Revoked) for place in event.places]
    assert sorted(given_away) == sorted(another.seen.assignment)


def test_groups_do_not_disturb_each_other(client: Client, four: str, join: Callable[..., SeenMember]) -> None:
    ours, theirs = f"ours-{four}", f"theirs-{four}"
    one, another = join(group=ours), join(group=theirs)
    wait_until_shared(client, ours, places(four, 4), [one])
    wait_until_shared(client, theirs, places(four, 4), [another])
    rebalances = one.seen.rebalances
    client.produce(four, numbered(0, 20))
    wait_for("reading", lambda: len(read_by(one)) == len(read_by(another)) == 20, [one, another])

    another.close()
    again = join(group=theirs)

    wait_until_shared(client, theirs, places(four, 4), [again])
    client.produce(four, numbered(20, 20))
    wait_for("reading", lambda: len(read_by(one)) == 40 and len(read_by(again)) == 20, [one, again])
    assert one.seen.rebalances == rebalances
    assert set(read_by(another, again)) == numbers(40)


def test_members_of_one_group_may_be_of_three_kinds(
    four: str, join: Callable[..., SeenMember], every_client: list[Client], client_name: str, shared: Shared
) -> None:
    """`roundrobin` is what all three know by default; the first one, of each kind in turn, hands it out."""
    leader = join()
    shared(places(four, 4), [leader])

    others = [join(client=other) for other in every_client if other.name != client_name]
    shared(places(four, 4), [leader, *others])
    every_client[0].produce(four, numbered(0, 40))

    members = [leader, *others]
    wait_for("reading", lambda: set(read_by(*members)) == numbers(40), members)
    assert all(member.seen.values for member in members)
