"""Copies: the calls that keep the data of the broker, go back to it, and let a second broker go on from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from broker.control.arguments import BadArguments, argument
from broker.control.calls import CHANGES, Answer, Call, Nothing
from broker.control.snapshots import copy_snapshot, take_snapshot

if TYPE_CHECKING:
    from broker.control.broker_host import BrokerHost

Fork = Callable[[Path], Awaitable[Answer]]
"""Starts a second broker on a copy of a snapshot, and says where it is."""


@dataclasses.dataclass(frozen=True)
class WhichSnapshot:
    """A snapshot."""

    snapshot: int = argument("the number that /snapshots/take has answered")


class Copies:
    """The snapshots of this process. They outlast the broker that they were taken of."""

    def __init__(self, host: BrokerHost, directory: Path, fork: Fork) -> None:
        """``directory`` exists and is empty."""
        self._host = host
        self._directory = directory
        self._fork = fork
        self._taken = 0

    def calls(self) -> list[Call]:
        """The calls about copies."""
        return [
            Call(
                CHANGES, "/snapshots/take", "Keep the data of now; answers the snapshot's number.", Nothing, self._take
            ),
            Call(
                CHANGES,
                "/snapshots/restore",
                "Begin anew with the data of a snapshot; connections are closed.",
                WhichSnapshot,
                self._restore,
            ),
            Call(
                CHANGES,
                "/fork",
                "Start a second broker with the data of now, on ports of its own.",
                Nothing,
                self._begin_fork,
            ),
        ]

    async def _take(self, _: Nothing) -> Answer:
        async with self._host.while_it_stays() as server:
            self._taken += 1
            await take_snapshot(server, self._host.data_directory, self._path(self._taken))
        return {"snapshot": self._taken}

    async def _restore(self, which: WhichSnapshot) -> Answer:
        path = self._path(which.snapshot)
        if not path.is_dir():
            raise BadArguments(f"snapshot is {which.snapshot}, and there is no such snapshot")
        await self._host.reset(lambda directory: copy_snapshot(path, directory))
        return {}

    async def _begin_fork(self, _: Nothing) -> Answer:
        taken = await self._take(_)
        return await self._fork(self._path(taken["snapshot"]))

    def _path(self, number: int) -> Path:
        return self._directory / str(number)
