"""Streams groups in tests of handlers: an application that reads ``lines`` and has a store."""

from typing import Any

from protocol.errors import ErrorCode as E
from protocol.messages.streams_groups import KeyValue, StreamsGroupHeartbeatRequest, TopicInfo
from tests.support.broker import InProcessBroker
from tests.support.groups import create_offsets_topic

G = "app"
CHANGELOG = "app-store-changelog"
SETTINGS = {
    "group_streams_initial_rebalance_delay_ms": 0,
    "group_streams_assignment_interval_ms": 0,
}

Topology = StreamsGroupHeartbeatRequest.Topology
Subtopology = Topology.Subtopology


def with_streams_groups(broker: InProcessBroker) -> None:
    """Create the topics that the application needs from others."""
    create_offsets_topic(broker)
    broker.create_topic("lines", partitions=2)


def topology(
    *reads: str, changelogs: tuple[str, ...] = (CHANGELOG,), configs: dict[str, str] | None = None
) -> Topology:
    topics = [
        TopicInfo(
            name=name,
            partitions=0,
            replication_factor=0,
            topic_configs=[KeyValue(key=key, value=value) for key, value in (configs or {}).items()],
        )
        for name in changelogs
    ]
    return Topology(
        epoch=0,
        subtopologies=[
            Subtopology(
                subtopology_id="0",
                source_topics=list(reads or ("lines",)),
                source_topic_regex=[],
                state_changelog_topics=topics,
                repartition_sink_topics=[],
                repartition_source_topics=[],
                copartition_groups=[],
            )
        ],
    )


def heartbeat(epoch: int = 0, **about: Any) -> StreamsGroupHeartbeatRequest:
    joining = {
        "rebalance_timeout_ms": 30_000,
        "topology": topology(),
        "process_id": "here",
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }
    usual = {"group_id": G, "member_id": "me", "member_epoch": epoch, "endpoint_information_epoch": 0}
    return StreamsGroupHeartbeatRequest(**(usual | (joining if epoch == 0 else {}) | about))


def joined(broker: InProcessBroker) -> Any:
    """Let the member join and get its tasks; the answer."""
    answer = broker.ask(heartbeat(), 1)
    broker.wait_until(lambda: CHANGELOG in broker.topics())
    assert answer.error_code == E.NONE
    return broker.ask(heartbeat(2), 1)
