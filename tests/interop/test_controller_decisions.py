"""The same requests to a controller of Apache Kafka and to this broker's controller: the same answers and records.

The brokers are requests only: nothing runs behind them. Their node ids are 2 to 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from dev.kafka_jars import KAFKA_VERSION
from tests.interop import programs
from tests.interop.clusters import Cluster as KafkaCluster
from tests.interop.conftest import installed
from tests.interop.two_controllers import (
    Comparison,
    Kafkas,
    Ours,
    assign,
    create,
    elect,
    end_sessions,
    heartbeat,
    isr,
    move,
    register,
    unregister,
)
from tests.support.raw_client import RawClient
from tests.unit.broker.controller.cluster import directory

NODES: Final = (2, 3, 4, 5, 6)
ALLOWED: Final = {
    "heartbeat 2 shutdown=True again": "Kafka fences a fenced broker again",
    "end the session of 2, which has stopped": "Kafka fences a fenced broker again",
    "elect 0 a-0 a-0": "Kafka elects a partition as often as it is named",
    "move r-5 back": "Kafka keeps the added replicas as such, and never ends the move",
    "move r-5 again": "as a consequence",
    "isr r-5 2 3 4": "as a consequence, by the leader epoch",
    "isr r-5 2 4": "as a consequence, by the leader epoch",
    "assign six-2 to a failed directory": "Kafka writes two records",
    "assign six-2 to a good directory": "Kafka elects no leader before the broker is unfenced again",
    "directory 1 of 6 fails": "as a consequence, this partition has a leader to lose",
    "assign s-2 to a failed directory": "Kafka writes two records",
    "move q-2 to 3": "Kafka keeps a replica that is gone as an eligible leader",
}
"""Where this controller decides otherwise on purpose."""


# The scripts


def begin(both: Comparison, *, two_directories: int = 0) -> None:
    for number in NODES:
        both(f"register {number}", register, number, directories=1 + (number == two_directories))
        both(f"heartbeat {number}", heartbeat, number)


def of_registrations(both: Comparison) -> None:
    both("another cluster", register, 7, cluster_id="anotherClusterAltogeth")
    both("no directories", register, 7, log_dirs=[])
    both("a reserved directory", register, 7, log_dirs=[(5).to_bytes(16, "big")])
    both("a directory twice", register, 7, log_dirs=[directory(7), directory(7)])
    both("the directory of another broker", register, 7, log_dirs=[directory(2)])
    both("no features", register, 7, features=[])
    both("a broker of ZooKeeper", register, 7, is_migrating_zk_broker=True)
    both("register another run of 2", register, 2, run=1)
    both("register 2 again", register, 2)
    both("heartbeat of an unknown broker", heartbeat, 9)
    both("register 7", register, 7, directories=2)
    both("heartbeat 7 fence=True", heartbeat, 7, fence=True)
    both("heartbeat 7 behind", heartbeat, 7, applied=0)
    both("heartbeat 7 cordoned=[]", heartbeat, 7, cordoned=[])


def of_isrs(both: Comparison) -> None:
    both("create a", create, "a", [2, 3, 4], [3, 4, 2], [4, 2, 3])
    both("create m", create, "m", [2, 3, 4], [3, 4, 2], [4, 2, 3], min_insync_replicas="2")
    both("create one", create, "one", [2], [3], [4], [5])
    both("create u", create, "u", [2, 3], [3, 4], unclean_leader_election_enable="true")
    for replicas in ([[9]], [[2, 2]], [[]], [[9, 9]], [[2], [2, 3]]):
        both(f"create bad {replicas}", create, "bad", *replicas)
    for brokers in ([2, 3], [2], [2, 4, 3], [2, 4, 3], [3, 4], [2, 5], [2, 2]):
        both(f"isr a-0 {brokers}", isr, "a", 0, brokers)
    for options in (
        {"by": 3},
        {"leader_epoch": 1},
        {"leader_epoch": -1},
        {"partition_epoch": 1},
        {"partition_epoch": -1},
        {"epochs": {3: 1}},
        {"epochs": {3: -1}},
        {"recovery": 1},
    ):
        both(f"isr a-0 {options}", isr, "a", 0, [2, 3], **options)
    both("isr a-0 alone, recovering", isr, "a", 0, [2], recovery=1)
    for index, brokers in ((0, [2]), (0, [2, 4]), (1, [3])):
        both(f"isr m-{index} {brokers}", isr, "m", index, brokers)


def of_stops(both: Comparison) -> None:
    both("heartbeat 2 shutdown=True", heartbeat, 2, shutdown=True)
    both("isr a-2 with 2, which shuts down", isr, "a", 2, [4, 2])
    for number in (3, 4, 5, 6, 7):
        both(f"heartbeat {number} knows it", heartbeat, number)
    both("heartbeat 2 shutdown=True, known", heartbeat, 2, shutdown=True)
    both("heartbeat 2 shutdown=True again", heartbeat, 2, shutdown=True)
    both("end the session of 2, which has stopped", end_sessions, 2)
    both("register 2 after a clean stop", register, 2, run=1, was_clean=True)
    both("heartbeat 2, run 1", heartbeat, 2)
    both("elect 0 a-0", elect, 0, ("a", 0))
    both("isr a-0 grows", isr, "a", 0, [3, 2, 4])
    both("elect 0 a-0 a-0", elect, 0, ("a", 0), ("a", 0))
    for election_type, name, index in ((0, "a", 1), (0, "nope", 0), (0, "a", 9), (1, "a", 0)):
        both(f"elect {election_type} {name}-{index}", elect, election_type, (name, index))
    for number in (2, 3, 4):
        both(f"end the session of {number}", end_sessions, number)
    both("register 3 uncleanly", register, 3, run=1)
    both("heartbeat 3, run 1", heartbeat, 3)
    both("register 2 cleanly", register, 2, run=2, was_clean=True)
    both("heartbeat 2, run 2", heartbeat, 2)
    both("register 4 uncleanly", register, 4, run=1)
    both("heartbeat 4, run 1", heartbeat, 4)
    both("elect 1 one-2", elect, 1, ("one", 2))
    both("elect 1", elect, 1)
    both("elect 0", elect, 0)
    both("unregister 4", unregister, 4)
    both("register 4 after that", register, 4, run=2)
    both("heartbeat 4, run 2", heartbeat, 4)


def of_moves(both: Comparison) -> None:
    both("create r", create, "r", *[[2, 3]] * 6)
    both("move r-0", move, "r", 0, [4, 5])
    both("isr r-0, one is missing", isr, "r", 0, [2, 3, 4])
    both("isr r-0", isr, "r", 0, [2, 3, 4, 5])
    both("move r-1", move, "r", 1, [2, 6])
    both("isr r-1", isr, "r", 1, [2, 3, 6])
    both("move r-2 to another order", move, "r", 2, [3, 2])
    both("elect 0 r-2", elect, 0, ("r", 2))
    both("move r-3 to one", move, "r", 3, [2])
    both("move r-3 where it is", move, "r", 3, [2])
    both("call r-3 off", move, "r", 3, None)
    both("move r-4", move, "r", 4, [4, 5])
    both("call r-4 off", move, "r", 4, None)
    both("move r-4 to three", move, "r", 4, [5, 4, 2])
    both("isr r-4, one is missing", isr, "r", 4, [2, 3, 5])
    both("move r-4 elsewhere", move, "r", 4, [2, 6])
    both("isr r-4", isr, "r", 4, [2, 3, 6])
    both("move r-5", move, "r", 5, [4, 5])
    both("move r-5 back", move, "r", 5, [2, 3])
    both("move r-5 again", move, "r", 5, [4, 5])
    both("isr r-5 2 3 4", isr, "r", 5, [2, 3, 4])
    both("isr r-5 2 4", isr, "r", 5, [2, 4])
    for replicas in ([2, 2], [], [9]):
        both(f"move r-5 to {replicas}", move, "r", 5, replicas)
    both("move r-9", move, "r", 9, [2])
    both("move x-0", move, "x", 0, [2])
    both("heartbeat 2 fence=True", heartbeat, 2, fence=True)
    both("call r-5 off", move, "r", 5, None)
    both("heartbeat 2 unfenced", heartbeat, 2)


def of_moves_to_fewer(both: Comparison) -> None:
    both("create q", create, "q", *[[2, 3, 4]] * 4, min_insync_replicas="2")
    both("isr q-0", isr, "q", 0, [2, 3])
    both("move q-0 to 4 3", move, "q", 0, [4, 3])
    both("isr q-0 2 3 4", isr, "q", 0, [2, 3, 4])
    both("isr q-1", isr, "q", 1, [2, 3])
    both("move q-1 to 2 3", move, "q", 1, [2, 3])
    both("isr q-2", isr, "q", 2, [2, 3])
    both("move q-2 to 3", move, "q", 2, [3])
    both("isr q-3", isr, "q", 3, [2])
    both("move q-3 to 2 3 5", move, "q", 3, [2, 3, 5])
    both("isr q-3 2 5", isr, "q", 3, [2, 5])


def of_directories(both: Comparison) -> None:
    both("create s", create, "s", [2, 3, 6], [6, 2, 3], [6, 3, 2], min_insync_replicas="2")
    both("create six", create, "six", [6], [6], [6])
    both("assign s-0", assign, 6, directory(6, 0), "s", 0)
    both("assign s-1", assign, 6, directory(6, 1), "s", 1)
    both("assign s-1 again", assign, 6, directory(6, 1), "s", 1)
    both("assign six-0", assign, 6, directory(6, 0), "six", 0)
    both("assign six-1", assign, 6, directory(6, 1), "six", 1)
    both("assign six-0, which is not its own", assign, 2, directory(2), "six", 0)
    both("assign six-2 to a failed directory", assign, 6, directory(6, 7), "six", 2)
    both("assign six-2 to a good directory", assign, 6, directory(6, 1), "six", 2)
    both("directory 1 of 6 fails", heartbeat, 6, offline=[directory(6, 1)])
    both("directory 1 of 6 has failed", heartbeat, 6, offline=[directory(6, 1)])
    both("assign s-2 to a failed directory", assign, 6, directory(6, 1), "s", 2)
    both("heartbeat 6 fence=True", heartbeat, 6, fence=True)
    both("heartbeat 6 unfenced", heartbeat, 6)
    both("heartbeat 6 fence=True shutdown=True", heartbeat, 6, fence=True, shutdown=True)


def of_recovery(both: Comparison) -> None:
    both("create t", create, "t", [2, 3], [3, 2], unclean_leader_election_enable="true")
    both("isr t-0", isr, "t", 0, [2])
    both("isr t-1", isr, "t", 1, [3])
    both("heartbeat 2 fence=True, t", heartbeat, 2, fence=True)
    both("isr t-0 recovering", isr, "t", 0, [3], recovery=1)
    both("isr t-0 recovered", isr, "t", 0, [3])
    both("heartbeat 2, t", heartbeat, 2)
    both("isr t-0 grows", isr, "t", 0, [3, 2])
    both("create v", create, "v", [2, 3])
    both("isr v-0", isr, "v", 0, [2])
    both("heartbeat 2 fence=True, v", heartbeat, 2, fence=True)
    both("elect 0 v-0", elect, 0, ("v", 0))
    both("elect 1 v-0", elect, 1, ("v", 0))
    both("heartbeat 2, v", heartbeat, 2)
    both("isr v-0 recovering", isr, "v", 0, [3], recovery=1)
    both("isr v-0 recovering, and grows", isr, "v", 0, [2, 3], recovery=1)
    both("isr v-0 recovered, and grows", isr, "v", 0, [2, 3])
    both("create p", create, "p", [2, 3, 4], min_insync_replicas="3")
    both("heartbeat 2 fence=True, p", heartbeat, 2, fence=True)
    both("heartbeat 2, p", heartbeat, 2)
    both("elect 0 p-0, where 2 is eligible", elect, 0, ("p", 0))


@pytest.fixture(params=[0, 1], ids=["without eligible leaders", "with eligible leaders"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Comparison]:
    libraries = str(installed(lambda: programs.kafka_libraries(KAFKA_VERSION)))
    features = {"eligible.leader.replicas.version": request.param}
    cluster = KafkaCluster(tmp_path, libraries, features=features)
    try:
        node = cluster.add_controller(
            settings={"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "1000"}
        )
        log = node.data_directory / "__cluster_metadata-0" / "00000000000000000000.log"
        with RawClient(f"127.0.0.1:{node.port}") as client:
            yield Comparison(Ours(has_elr=bool(request.param)), Kafkas(client, log))
    finally:
        cluster.close()


@pytest.mark.parametrize(
    ("scripts", "two_directories"),
    [
        ((of_registrations, of_isrs, of_stops), 0),
        ((of_moves, of_moves_to_fewer), 6),
        ((of_directories, of_recovery), 6),
    ],
    ids=["brokers", "moves", "directories"],
)
def test_both_controllers_decide_alike(
    both: Comparison, scripts: Sequence[Callable[[Comparison], None]], two_directories: int
) -> None:
    begin(both, two_directories=two_directories)
    for script in scripts:
        script(both)

    unexpected = {what: difference for what, difference in both.differences.items() if what not in ALLOWED}
    assert not unexpected, "\n\n".join(f"{what}\n{difference}" for what, difference in unexpected.items())
