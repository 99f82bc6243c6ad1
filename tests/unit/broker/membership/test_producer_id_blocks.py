"""Blocks of producer ids, as a broker asks its controller for them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from broker.membership.producer_id_blocks import ProducerIdBlocks
from broker.runtime.backoff import Backoff
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from storage.errors import DiskFull, StorageError
from tests.unit.broker.membership.turns import until


class Controller:
    """The controller. It answers with `answers` first, None being no answer, and then with the next block."""

    def __init__(self) -> None:
        self.asked: list[AllocateProducerIdsRequest] = []
        self.answers: deque[AllocateProducerIdsResponse | DiskFull | None] = deque()
        self.next_id = 1_000

    async def ask(self, request: Any, answer: type) -> Any:
        self.asked.append(request)
        await asyncio.sleep(0)
        if not self.answers:
            first, self.next_id = self.next_id, self.next_id + 1_000
            return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=1_000)
        if isinstance(found := self.answers.popleft(), DiskFull):
            raise found
        return found

    def close(self) -> None:
        pass


def blocks_of(controller: Controller, wanted: int) -> tuple[list[range], list[StorageError]]:
    """The blocks that so many requests get, and the errors of those that fail."""

    async def run() -> tuple[list[range], list[StorageError]]:
        clock, blocks, failed = ManualClock(), list[range](), list[StorageError]()
        producer_ids = ProducerIdBlocks(
            controller, node_id=7, broker_epoch=lambda: 50, clock=clock, backoff=Backoff(lambda: 0.5)
        )
        task = asyncio.ensure_future(producer_ids.run())
        for _ in range(wanted):
            producer_ids.allocate(blocks.append, failed.append)
        await until(lambda: len(blocks) + len(failed) == wanted, clock)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return blocks, failed

    return asyncio.run(run())


def test_a_block_is_asked_for_until_the_controller_gives_it() -> None:
    controller = Controller()
    controller.answers += [None, AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)]

    assert blocks_of(controller, 2) == ([range(1_000, 2_000), range(2_000, 3_000)], [])
    assert controller.asked == [AllocateProducerIdsRequest(broker_id=7, broker_epoch=50)] * 4


def test_a_controller_in_this_process_without_disk_space_is_an_error_for_the_request_that_waits() -> None:
    controller = Controller()
    controller.answers.append(full := DiskFull("no space left"))

    assert blocks_of(controller, 2) == ([range(1_000, 2_000)], [full])
