"""What a broker tells its controller of the log directories of its replicas."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from broker.membership.directory_assignments import FULL_DISK_RETRY_MS, DirectoryAssignments
from broker.metadata.directories import LOST
from broker.runtime.backoff import Backoff
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from storage.errors import DiskFull
from tests.unit.broker.membership.turns import until

ORDERS, PAYMENTS = bytes([1] * 16), bytes([2] * 16)
FIRST_DIR, SECOND_DIR = bytes([7] * 16), bytes([8] * 16)


class Controller:
    """The controller. It answers with `answers` first, None being no answer, and then as it should."""

    def __init__(self) -> None:
        self.asked: list[AssignReplicasToDirsRequest] = []
        self.answers: deque[AssignReplicasToDirsResponse | DiskFull | None] = deque()
        self.known_directories: list[bytes] | None = [FIRST_DIR, SECOND_DIR]
        """The log directories of this broker in the metadata."""
        self.assignments_fail = ErrorCode.NONE
        """What each replica is answered with."""
        self.closed = False

    async def ask(self, request: Any, answer: type) -> Any:
        self.asked.append(request)
        await asyncio.sleep(0)
        if not self.answers:
            return assigned(request, self.assignments_fail)
        if isinstance(found := self.answers.popleft(), DiskFull):
            raise found
        return found

    def close(self) -> None:
        self.closed = True


def assigned(request: AssignReplicasToDirsRequest, code: ErrorCode = ErrorCode.NONE) -> AssignReplicasToDirsResponse:
    """The answer in which every replica has the code."""
    of_directory = AssignReplicasToDirsResponse.Directory
    of_topic = of_directory.Topic
    return AssignReplicasToDirsResponse(
        directories=[
            of_directory(
                id=directory.id,
                topics=[
                    of_topic(
                        topic_id=topic.topic_id,
                        partitions=[
                            of_topic.Partition(partition_index=partition.partition_index, error_code=code)
                            for partition in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ]
    )


def telling(
    test: Callable[[DirectoryAssignments, Controller, Callable[[Callable[[], bool]], Awaitable[None]]], Any],
) -> None:
    """Run a test beside the task that tells; the test is given a way to wait until something holds."""

    async def run() -> None:
        controller, clock = Controller(), ManualClock()
        assignments = DirectoryAssignments(
            controller,
            node_id=7,
            broker_epoch=lambda: 50,
            known_directories=lambda: controller.known_directories,
            clock=clock,
            backoff=Backoff(lambda: 0.5),
        )
        task = asyncio.ensure_future(assignments.run())

        try:
            await test(assignments, controller, partial(until, clock=clock))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert controller.closed

    asyncio.run(run())


def test_the_controllers_are_told_where_replicas_are_until_they_have_it() -> None:
    async def test(assignments: DirectoryAssignments, controller: Controller, until: Any) -> None:
        controller.answers += [None, AssignReplicasToDirsResponse(error_code=77, directories=[])]
        assignments.assign(ORDERS, 0, FIRST_DIR)
        assignments.assign(ORDERS, 1, SECOND_DIR)
        assignments.assign(PAYMENTS, 0, FIRST_DIR)
        await until(lambda: len(controller.asked) == 3 and not assignments._places)

        asked = controller.asked[-1]
        assert (asked.broker_id, asked.broker_epoch) == (7, 50)
        assert {
            (bytes(directory.id), bytes(topic.topic_id), partition.partition_index)
            for directory in asked.directories
            for topic in directory.topics
            for partition in topic.partitions
        } == {(FIRST_DIR, ORDERS, 0), (SECOND_DIR, ORDERS, 1), (FIRST_DIR, PAYMENTS, 0)}

    telling(test)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER]
)
def test_a_replica_that_is_gone_is_not_told_of_again_and_another_error_is(code: ErrorCode) -> None:
    async def test(assignments: DirectoryAssignments, controller: Controller, until: Any) -> None:
        known: list[int] = []
        controller.assignments_fail = ErrorCode.UNKNOWN_SERVER_ERROR
        assignments.assign(ORDERS, 0, FIRST_DIR, lambda: known.append(0))
        await until(lambda: len(controller.asked) == 2)
        assert assignments.waiting == 1

        controller.assignments_fail = code
        await until(lambda: assignments.waiting == 0)
        asked = len(controller.asked)
        assert known == [], "the controllers do not have the directory of a replica that is gone"
        controller.assignments_fail = ErrorCode.NONE
        assignments.assign(ORDERS, 1, FIRST_DIR, lambda: known.append(1))
        await until(lambda: known == [1])
        assert len(controller.asked) == asked + 1

    telling(test)


def test_more_of_what_is_asked_again_ends_no_pause() -> None:
    async def test(assignments: DirectoryAssignments, controller: Controller, until: Any) -> None:
        controller.assignments_fail = ErrorCode.UNKNOWN_SERVER_ERROR
        assignments.assign(ORDERS, 0, FIRST_DIR)
        await until(lambda: len(controller.asked) == 10)
        began_ms = assignments._clock.monotonic_ms()
        for index in range(1, 100):
            assignments.assign(ORDERS, index, FIRST_DIR)
            await asyncio.sleep(0)
        await until(lambda: len(controller.asked) == 11)
        assert assignments._clock.monotonic_ms() - began_ms > 500

    telling(test)


def test_replicas_that_come_while_the_controllers_are_told_are_told_without_a_pause() -> None:
    async def test(assignments: DirectoryAssignments, controller: Controller, until: Any) -> None:
        assignments.assign(ORDERS, 0, FIRST_DIR)
        await until(lambda: len(controller.asked) == 1)
        began_ms = assignments._clock.monotonic_ms()
        assignments.assign(ORDERS, 1, FIRST_DIR)
        await until(lambda: assignments.waiting == 0)
        assert assignments._clock.monotonic_ms() - began_ms < 10

    telling(test)


@pytest.mark.parametrize("known", [None, []])
def test_below_the_level_that_has_directories_the_controllers_are_told_of_no_replica(
    known: list[bytes] | None,
) -> None:
    """Also not while this broker's registration has no directories yet: the replica's would be none of its own."""

    async def test(assignments: DirectoryAssignments, controller: Controller, until: Any) -> None:
        controller.known_directories = known
        moves: list[str] = []
        assignments.assign(ORDERS, 0, FIRST_DIR)
        assignments.assign(ORDERS, 1, SECOND_DIR, lambda: moves.append("may go on"))
        assert (moves, assignments.waiting) == (["may go on"], 0)

        controller.known_directories = [FIRST_DIR, SECOND_DIR]
        assignments.assign(ORDERS, 2, FIRST_DIR)
        await until(lambda: bool(controller.asked) and assignments.waiting == 0)
        (asked,) = controller.asked
        assert [partition.partition_index for partition in asked.directories[0].topics[0].partitions] == [2]

    telling(test)


def test_a_controller_in_this_process_without_disk_space_is_told_again_after_a_second() -> None:
    async def test(assignments: DirectoryAssignments, controller: Controller, until: Any) -> None:
        controller.answers.append(DiskFull("no space left"))
        assignments.lost(ORDERS, 0)
        await until(lambda: len(controller.asked) == 1)
        began_ms = assignments._clock.monotonic_ms()
        await until(lambda: assignments.waiting == 0)
        assert assignments._clock.monotonic_ms() - began_ms >= FULL_DISK_RETRY_MS - 1
        assert [bytes(directory.id) for directory in controller.asked[-1].directories] == [LOST]

    telling(test)
