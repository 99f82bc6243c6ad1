"""The moments at which the broker is killed, and how it is brought to each."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from dev.broker_process import BrokerProcess
from tests.crash.administrator import Administrator
from tests.crash.producers import Producer
from tests.crash.topics import LARGE, Place

_PATIENCE_S: Final = 5.0
"""How long an occasion is waited for; then the broker is killed without one."""


class Victim(Protocol):
    """A broker that serves, and what goes on around it."""

    broker: BrokerProcess
    chance: random.Random
    producers: list[Producer]
    administrator: Administrator
    start_s: float
    """How long the last start took."""

    def kill(self) -> None:
        """SIGKILL, now."""

    def tell_to_stop(self) -> None:
        """SIGTERM."""

    def launch(self) -> None:
        """Start the process again and wait for nothing."""


def while_serving(victim: Victim) -> None:
    """Some time after it was ready."""
    time.sleep(victim.chance.uniform(0, 0.5))
    victim.kill()


def after_an_acknowledgement(victim: Victim) -> None:
    """As soon as anybody's records are acknowledged: what was answered last is the newest in the log."""
    answered = [producer.answered for producer in victim.producers]
    _wait_for(lambda: answered != [producer.answered for producer in victim.producers])
    victim.kill()


def in_a_large_write(victim: Victim) -> None:
    """As soon as a segment of large batches grows: the batch is in the file in part."""
    directory = victim.broker.data_directory / str(Place(LARGE.name, 0))
    sizes = _segment_sizes(directory)
    deadline = time.monotonic() + _PATIENCE_S
    while sizes == _segment_sizes(directory) and time.monotonic() < deadline:
        pass  # a write takes a millisecond or two: whoever rests meanwhile comes too late
    victim.kill()


def at_a_change(victim: Victim) -> None:
    """When somebody has asked for a change of topics, configs or log starts, or has just been answered."""
    _wait_for(victim.administrator.is_asking.is_set)
    if victim.chance.random() < 0.5:
        _wait_for(lambda: not victim.administrator.is_asking.is_set())
    else:
        time.sleep(victim.chance.uniform(0, 0.002))
    victim.kill()


def while_starting(victim: Victim) -> None:
    """Once while it serves, then up to three times before it is ready again."""
    victim.kill()
    for _ in range(victim.chance.randint(1, 3)):
        victim.launch()
        time.sleep(victim.chance.uniform(0, victim.start_s * 1.1))
        victim.kill()


def while_stopping(victim: Victim) -> None:
    """After SIGTERM, before it has stopped or shortly after."""
    time.sleep(victim.chance.uniform(0, 0.2))
    victim.tell_to_stop()
    time.sleep(victim.chance.uniform(0, victim.start_s / 2))  # a stop takes about half of that
    victim.kill()


Moment = Callable[[Victim], None]

MOMENTS: Final[dict[Moment, int]] = {
    while_serving: 3,
    after_an_acknowledgement: 2,
    in_a_large_write: 3,
    at_a_change: 3,
    while_starting: 2,
    while_stopping: 2,
}
"""How often each comes, in relation to the others."""


def name_of(moment: Moment) -> str:
    """The moment in words."""
    return moment.__name__.replace("_", " ")


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.0002)


def _segment_sizes(directory: Path) -> dict[str, int]:
    sizes = {}
    for entry in os.scandir(directory):
        if entry.name.endswith(".log"):
            try:
                sizes[entry.name] = entry.stat().st_size
            except FileNotFoundError:
                continue  # retention was faster
    return sizes
