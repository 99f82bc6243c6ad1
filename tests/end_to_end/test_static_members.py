"""A member with an instance id keeps its partitions while it is away for less than its session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.end_to_end.conftest import Shared
from tests.support.clients import Client, Record
from tests.support.clients.members import SeenMember, places, wait_for

SESSION_TIMEOUT_MS = 3_000
FENCED_INSTANCE_ID = 82


def test_a_static_member_that_comes_back_keeps_its_partitions_without_a_rebalance(
    client: Client, four: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    one, another = join(instance_id="one"), join(instance_id="another")
    shared(places(four, 4), [one, another])
    its_part, rebalances = one.seen.assignment, another.seen.rebalances

    one.close()
    again = join(instance_id="one")

    shared(places(four, 4), [again, another])
    client.produce(four, [Record(value=b"%d" % number, partition=number) for number in range(4)])
    wait_for("reading", lambda: len(again.seen.values) == len(another.seen.values) == 2, [again, another])
    assert again.seen.assignment == its_part
    assert another.seen.rebalances == rebalances


def test_the_first_of_a_group_comes_back_to_all_of_it(
    client: Client, four: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    alone = join(instance_id="alone")
    shared(places(four, 4), [alone])

    alone.close()
    assert client.describe_group(f"group-{four}").state == "Stable", "it has left"
    again = join(instance_id="alone")

    shared(places(four, 4), [again])


def test_a_static_member_that_stays_away_loses_its_partitions_when_its_session_is_over(
    four: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    one = join(instance_id="one", session_timeout_ms=SESSION_TIMEOUT_MS)
    another = join(instance_id="another", session_timeout_ms=SESSION_TIMEOUT_MS)
    shared(places(four, 4), [one, another])

    one.close()

    shared(places(four, 4), [another])


def test_of_two_with_one_instance_id_the_elder_is_fenced(
    client: Client, four: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    if client.name == "aiokafka":
        pytest.skip("aiokafka sends no instance id with heartbeats and commits: the two take turns")
    elder = join(instance_id="one")
    shared(places(four, 4), [elder])

    younger = join(instance_id="one")

    wait_for("the younger one's part", lambda: younger.seen.assignment == places(four, 4), [younger])
    wait_for("fencing", lambda: elder.seen.ended is not None, [younger])
    assert elder.seen.ended is not None
    assert elder.seen.ended.code == FENCED_INSTANCE_ID
