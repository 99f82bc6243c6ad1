"""To which replica a consumer is sent, by racks, logs and brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from broker.fetch.replica_choice import RackAwareSelector
from broker.metadata.brokers import Brokers
from broker.metadata.image.metadata_image import MetadataImage
from broker.replication.in_sync_replicas import FollowerFetch
from broker.replication.partition import LeaderAndIsr, Partition
from broker.runtime.manual_clock import ManualClock
from storage.log_dir import LogDir
from tests.support.cluster import broker_record
from tests.support.logs import LogHome
from tests.support.metadata import image_of

LEADER = 1


@pytest.fixture
def home(tmp_path: Path) -> LogHome:
    return LogHome(tmp_path)


@dataclass
class Metadata:
    """The brokers 1 and 2 in rack a, 3 and 4 in rack b, and 5 in none; 4 has the listener INSIDE alone."""

    image: MetadataImage


class Led:
    """A partition that node 1 leads; its log has the offsets 0 to 9."""

    def __init__(self, home: LogHome, replicas: Sequence[int], isr: Sequence[int]) -> None:
        self.clock = ManualClock()
        log = home.open()
        home.append_values(log, *[b"v"] * 10)
        self.partition = Partition(
            clock=self.clock,
            log=log,
            log_dir=cast(LogDir, None),
            topic_id=bytes(16),
            node_id=LEADER,
            state=LeaderAndIsr(LEADER, 0, tuple(replicas), frozenset(isr)),
            on_disk_failure=lambda partition, error: None,
        )

    def fetched(self, replica: int, offset: int, log_start: int = 0) -> None:
        assert self.partition.followers is not None
        self.partition.followers.fetched(
            replica,
            FollowerFetch(offset, log_start, -1),
            leaders_end_offset=10,
            now_ms=self.clock.monotonic_ms(),
        )


def preferred(
    led: Led, offset: int, rack: str, listener: str = "PLAINTEXT", *, fenced: Sequence[int] = ()
) -> int | None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: None}
    listeners = {4: ("INSIDE",)}
    image = image_of(
        *(
            broker_record(one, *listeners.get(one, ("PLAINTEXT", "INSIDE")), rack=rack, fenced=one in fenced)
            for one, rack in racks.items()
        )
    )
    choice = RackAwareSelector(Brokers(Metadata(image), max)).choice(rack, listener)
    return None if choice is None else choice.preferred(led.partition, offset)


def test_the_follower_in_the_consumers_rack_is_preferred(home: LogHome) -> None:
    led = Led(home, (1, 3, 5), (1, 3, 5))
    for replica in (3, 5):
        led.fetched(replica, 10)
    assert {rack: preferred(led, 0, rack) for rack in ("a", "b", "c", "")} == {"a": None, "b": 3, "c": None, "": None}


def test_a_leader_in_the_consumers_rack_comes_before_its_neighbours(home: LogHome) -> None:
    led = Led(home, (1, 2), (1, 2))
    led.fetched(2, 10)
    assert preferred(led, 0, "a") is None
    assert preferred(led, 0, "a", fenced=[1]) == 2


@pytest.mark.parametrize(("offset", "expected"), [(3, None), (4, 3), (8, 3), (9, None)])
def test_the_follower_must_have_the_offset(home: LogHome, offset: int, expected: int | None) -> None:
    led = Led(home, (1, 3), (1, 3))
    assert preferred(led, offset, "b") is None, "it has not fetched yet"
    led.fetched(3, 8, log_start=4)
    assert preferred(led, offset, "b") == expected


def test_the_follower_must_be_in_sync(home: LogHome) -> None:
    led = Led(home, (1, 3), (1,))
    led.fetched(3, 10)
    assert preferred(led, 0, "b") is None


def test_the_follower_must_be_alive_and_on_the_consumers_listener(home: LogHome) -> None:
    led = Led(home, (1, 3, 4), (1, 3, 4))
    for replica in (3, 4):
        led.fetched(replica, 10)
    assert preferred(led, 0, "b") == 3
    assert preferred(led, 0, "b", fenced=[3]) is None
    assert preferred(led, 0, "b", "INSIDE", fenced=[3]) == 4
    assert preferred(led, 0, "b", "OUTSIDE") is None


def test_of_several_followers_the_longest_log_counts_then_who_was_caught_up_last(home: LogHome) -> None:
    led = Led(home, (1, 3, 4), (1, 3, 4))
    led.fetched(3, 9)
    led.fetched(4, 8)
    assert preferred(led, 0, "b", "INSIDE") == 3
    led.fetched(4, 10)
    assert preferred(led, 0, "b", "INSIDE") == 4
    led.clock.advance(5)
    led.fetched(3, 10)
    assert preferred(led, 0, "b", "INSIDE") == 3
    led.fetched(4, 10)
    assert preferred(led, 0, "b", "INSIDE") == 4, "as the greater id"


def test_a_partition_without_followers_is_read_from_its_leader(home: LogHome) -> None:
    assert preferred(Led(home, (1,), (1,)), 0, "b") is None
