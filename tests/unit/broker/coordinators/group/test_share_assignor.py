"""The simple assignor of share groups: everything is shared out evenly, and what can stay stays."""

from hypothesis import given
from hypothesis import strategies as st

from broker.coordinators.group.share.assignor import assign

A, B = bytes(15) + b"\1", bytes(15) + b"\2"


def partitions_of(assignment):
    return sorted((topic, index) for topic, indexes in assignment.items() for index in indexes)


def available(**counts):
    ids = {"a": A, "b": B}
    return {ids[name]: frozenset(range(count)) for name, count in counts.items() if count}


def test_one_member_has_everything():
    assert assign({"m": {A, B}}, {}, available(a=2, b=1)) == {"m": {A: frozenset({0, 1}), B: frozenset({0})}}


def test_members_have_equally_many_partitions():
    found = assign({"m1": {A}, "m2": {A}}, {}, available(a=5))
    assert sorted(len(partitions_of(one)) for one in found.values()) == [2, 3]
    assert sorted(partitions_of(found["m1"]) + partitions_of(found["m2"])) == [(A, index) for index in range(5)]


def test_more_members_than_partitions_share_them():
    found = assign({f"m{number}": {A} for number in range(5)}, {}, available(a=2))
    places = [one for assignment in found.values() for one in partitions_of(assignment)]
    assert sorted(places) == [(A, 0)] * 3 + [(A, 1)] * 3
    assert sorted(len(partitions_of(one)) for one in found.values()) == [1, 1, 1, 1, 2]


def test_members_that_want_different_topics_get_only_theirs():
    found = assign({"m1": {A}, "m2": {A, B}}, {}, available(a=2, b=2))
    assert set(found["m1"]) == {A}
    assert found["m2"][B] == frozenset({0, 1})
    assert len(found["m1"][A]) == len(found["m2"][A]) == 1


def test_nothing_is_assigned_that_is_not_available():
    assert assign({"m": {A, B}}, {"m": {A: frozenset({0, 7})}}, available(a=1)) == {"m": {A: frozenset({0})}}
    assert assign({"m": set()}, {}, available(a=1)) == {"m": {}}
    assert assign({}, {}, available(a=1)) == {}


def test_a_new_member_takes_no_more_than_its_part():
    first = assign({"m1": {A}, "m2": {A}}, {}, available(a=6))
    second = assign({"m1": {A}, "m2": {A}, "m3": {A}}, first, available(a=6))
    for member in ("m1", "m2"):
        assert second[member][A] < first[member][A]
        assert len(second[member][A]) == 2


members = st.dictionaries(st.sampled_from([f"m{number}" for number in range(9)]), st.sets(st.sampled_from([A, B])))


@given(st.lists(members, min_size=1, max_size=4), st.integers(0, 7), st.integers(0, 7))
def test_every_partition_has_a_member_and_nobody_has_too_much(rounds, of_a, of_b):
    held = {}
    there = available(a=of_a, b=of_b)
    for subscriptions in rounds:
        held = assign(subscriptions, held, there)
        assert held.keys() == subscriptions.keys()
        for topic, indexes in there.items():
            subscribers = [member for member, topics in subscriptions.items() if topic in topics]
            sharing = -(-len(subscribers) // len(indexes))
            for index in indexes:
                owners = [member for member, assignment in held.items() if index in assignment.get(topic, ())]
                assert set(owners) <= set(subscribers)
                if subscribers:
                    assert owners, "a partition that nobody reads"
                if len({frozenset(topics) for topics in subscriptions.values()}) > 1:
                    assert len(owners) <= sharing
        assert assign(subscriptions, held, there) == held, "what is shared out stays as it is"
