"""aiokafka's consumer in a group."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
)

from tests.support.clients import Place, Received, RequestFailed
from tests.support.clients.aiokafka_client import received
from tests.support.clients.members import NO_OFFSET, POLL_MS, Assigned, Membership, NotCommitted, Revoked, Tell

UNKNOWN_TO_AIOKAFKA = -1
"""The code that aiokafka reports for an error whose code it does not know."""

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class GroupConsumer(ConsumerRebalanceListener):  # type: ignore[misc]
    """A member with aiokafka. Its loop runs while it polls or commits; heartbeats and rebalances happen in tasks of
    their own."""

    def __init__(self, address: dict[str, Any], membership: Membership, tell: Tell) -> None:
        options: dict[str, Any] = {
            **address,
            "group_id": membership.group,
            "group_instance_id": membership.instance_id,
            "auto_offset_reset": "earliest" if membership.without_offset == "earliest" else "none",
            "enable_auto_commit": membership.commits == "by itself",
        }
        if membership.assignor is not None:
            options["partition_assignment_strategy"] = [ASSIGNORS[membership.assignor]]
        if membership.rebalance_timeout_ms is not None:
            options["max_poll_interval_ms"] = membership.rebalance_timeout_ms
        if membership.session_timeout_ms is not None:
            options["session_timeout_ms"] = membership.session_timeout_ms
        if membership.heartbeat_ms is not None:
            options["heartbeat_interval_ms"] = membership.heartbeat_ms
        self._tell = tell
        self._behind: dict[Place, int] = {}
        self._between_rebalances = asyncio.Lock()
        self._runner = asyncio.Runner()
        self._consumer: Any = None
        try:
            self._run(self._start(options, membership.topics))
        except BaseException:
            self._runner.close()
            raise

    async def _start(self, options: dict[str, Any], topics: Iterable[str]) -> None:
        self._consumer = AIOKafkaConsumer(**options)
        self._consumer.subscribe(list(topics), listener=self)
        try:
            await self._consumer.start()
        except BaseException:
            await self._consumer.stop()
            raise

    def poll(self) -> list[Received]:
        records: list[Received] = self._run(self._poll())
        return records

    async def _poll(self) -> list[Received]:
        batches = await self._consumer.getmany(timeout_ms=POLL_MS)
        for place, records in batches.items():
            self._behind[Place(*place)] = records[-1].offset + 1
        return [received(record) for records in batches.values() for record in records]

    def commit(self) -> dict[Place, int]:
        offsets: dict[Place, int] = self._run(self._commit())
        return offsets

    async def _commit(self) -> dict[Place, int]:
        # It commits in the name of the generation of the moment, whichever the records were polled in.
        async with self._between_rebalances:
            offsets, self._behind = self._behind, {}
            if offsets:
                try:
                    await self._consumer.commit({TopicPartition(*place): offset for place, offset in offsets.items()})
                except (CommitFailedError, IllegalStateError) as error:
                    raise NotCommitted(str(error)) from error
        return offsets

    def pause(self, places: Iterable[Place]) -> None:
        self._run(self._call(self._consumer.pause, places))

    def resume(self, places: Iterable[Place]) -> None:
        self._run(self._call(self._consumer.resume, places))

    async def _call(self, what: Callable[..., None], places: Iterable[Place]) -> None:
        """Call a method within the loop, since aiokafka makes its futures there."""
        what(*(TopicPartition(*place) for place in places))

    def close(self) -> None:
        try:
            # By then it has left the group. A fetch that has failed and is about to be tried again is cancelled, and
            # aiokafka is told so by its own wait for it.
            with contextlib.suppress(asyncio.CancelledError):
                self._run(self._consumer.stop())
        finally:
            self._runner.close()

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._tell(Assigned(frozenset(Place(*place) for place in assigned)))

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        places = frozenset(Place(*place) for place in revoked)
        async with self._between_rebalances:
            self._behind = {place: offset for place, offset in self._behind.items() if place not in places}
        self._tell(Revoked(places))

    def _run(self, work: Any) -> Any:
        try:
            return self._runner.run(work)
        except BrokerResponseError as error:
            raise RequestFailed(error.errno, str(error)) from error
        except NoOffsetForPartitionError as error:
            raise RequestFailed(NO_OFFSET, str(error)) from error
        except KafkaError as error:
            raise RequestFailed(UNKNOWN_TO_AIOKAFKA, str(error)) from error
