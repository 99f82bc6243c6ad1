"""Requests that wait while records of their group are in flight."""

import pytest

from broker.coordinators.group.image import GroupMetadata
from broker.coordinators.group.queues import MOST_WAITING, GroupQueues
from broker.coordinators.group.records import GroupResult, group_record
from protocol.errors import ErrorCode

NONE = ErrorCode.NONE


class Writing:
    """Queues whose results are written on command."""

    def __init__(self):
        self.in_flight = []
        self.told = []
        self.queues = GroupQueues(self.in_flight.append)

    def asks(self, name, *, alone=True, writes=True, group="g"):
        def decision():
            self.told.append(f"{name} is decided")
            if not writes:
                return None
            return GroupResult([group_record(group, GroupMetadata())], lambda error: self.told.append((name, error)))

        result = self.queues.decide(group, decision, lambda error: self.told.append((name, error)), alone=lambda: alone)
        if result is not None:
            self.in_flight.append(result)

    def settles(self, error=NONE):
        self.in_flight.pop(0).then(error)

    def takes(self):
        told, self.told = self.told, []
        return told


@pytest.fixture
def writing():
    return Writing()


def test_a_request_waits_until_the_records_before_it_are_replayed(writing):
    writing.asks("first")
    writing.asks("second")
    assert writing.takes() == ["first is decided"]

    writing.settles()
    assert writing.takes() == [("first", NONE), "second is decided"]
    writing.settles(ErrorCode.KAFKA_STORAGE_ERROR)
    assert writing.takes() == [("second", ErrorCode.KAFKA_STORAGE_ERROR)]
    assert not writing.queues.is_busy("g")


def test_other_groups_and_requests_that_write_nothing_hold_nobody_up(writing):
    writing.asks("first")
    writing.asks("other", group="h")
    writing.asks("reads", writes=False)
    writing.asks("last", writes=False)
    assert writing.takes() == ["first is decided", "other is decided"]

    writing.settles()
    assert writing.takes() == [("first", NONE), "reads is decided", "last is decided"]


def test_rebalances_of_a_classic_group_wait_for_what_is_decided_alone_only(writing):
    writing.asks("one round", alone=False)
    writing.asks("next round", alone=False)
    writing.asks("deletion")
    writing.asks("third round", alone=False)
    assert writing.takes() == ["one round is decided", "next round is decided"]

    writing.settles()
    assert writing.takes() == [("one round", NONE)]
    writing.settles()
    assert writing.takes() == [("next round", NONE), "deletion is decided"]
    writing.settles()
    assert writing.takes() == [("deletion", NONE), "third round is decided"]


def test_a_late_record_answers_who_waits_and_holds_up_who_comes_until_it_is_known(writing):
    writing.asks("first")
    writing.asks("second")
    writing.queues.decide_unasked("g", lambda: writing.told.append("the alarm is decided"))
    writing.takes()

    writing.in_flight[0].late()
    assert writing.takes() == [
        ("first", ErrorCode.REQUEST_TIMED_OUT),
        ("second", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]
    writing.asks("third")
    writing.settles()
    assert writing.takes() == ["the alarm is decided", "third is decided"]


def test_a_queue_is_bounded_and_failing_writes_are_no_recursion(writing):
    writing.asks("first")
    for number in range(MOST_WAITING):
        writing.asks(number)
    writing.takes()
    writing.asks("too many")
    assert writing.takes() == [("too many", ErrorCode.COORDINATOR_NOT_AVAILABLE)]

    writing.queues._submit = lambda result: result.then(ErrorCode.KAFKA_STORAGE_ERROR)
    writing.settles()

    assert writing.takes()[-1] == (MOST_WAITING - 1, ErrorCode.KAFKA_STORAGE_ERROR)
    assert not writing.queues.is_busy("g")


def test_who_waits_when_the_partition_goes_is_told_so(writing):
    writing.asks("first")
    writing.asks("second")
    writing.takes()

    writing.queues.unload(ErrorCode.NOT_COORDINATOR)
    assert writing.takes() == [("second", ErrorCode.NOT_COORDINATOR)]
    writing.settles()
    assert writing.takes() == [("first", NONE)]
