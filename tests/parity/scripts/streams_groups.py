"""Streams groups (KIP-1071): heartbeats good and bad, topologies, internal topics, tasks of two members, standby tasks,
static members, endpoints, offsets, and administration."""

from __future__ import annotations

from typing import Any

from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from protocol.messages.streams_groups import (
    Endpoint,
    KeyValue,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    TaskIds,
    TaskOffset,
    TopicInfo,
    TopologyDescription,
)
from tests.parity.exchange import Exchange
from tests.parity.members import Member, await_coordinator

SETTINGS = {
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.max.size": "3",
}

VERSIONS = (0, 1)
NEWEST = 1

Topology = StreamsGroupHeartbeatRequest.Topology
Subtopology = Topology.Subtopology


def run(exchange: Exchange) -> None:
    exchange.create_topic("lines", partitions=4)
    exchange.create_topic("others", partitions=3)
    await_coordinator(exchange)
    for version in VERSIONS:
        no_sense(exchange, version)
        lives(exchange, version)
    epochs(exchange)
    topologies(exchange)
    internal_topics(exchange)
    two_members(exchange)
    delays(exchange)
    standby_tasks(exchange)
    static_members(exchange)
    tags_and_endpoints(exchange)
    shutdown(exchange)
    offsets(exchange)
    administration(exchange)


def subtopology(
    name: str,
    reads: list[str],
    *,
    changelogs: list[Any] | None = None,
    writes: list[str] | None = None,
    rereads: list[Any] | None = None,
    together: list[Any] | None = None,
    regex: list[str] | None = None,
) -> Subtopology:
    return Subtopology(
        subtopology_id=name,
        source_topics=reads,
        source_topic_regex=regex or [],
        state_changelog_topics=[topic(one) for one in changelogs or []],
        repartition_sink_topics=writes or [],
        repartition_source_topics=[topic(one) for one in rereads or []],
        copartition_groups=together or [],
    )


def topic(about: Any) -> TopicInfo:
    if isinstance(about, TopicInfo):
        return about
    name, partitions = about if isinstance(about, tuple) else (about, 0)
    return TopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=[])


def together(reads: list[int], rereads: list[int]) -> Subtopology.CopartitionGroup:
    return Subtopology.CopartitionGroup(source_topics=reads, source_topic_regex=[], repartition_source_topics=rereads)


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(subtopologies))


PLAIN = topology(subtopology("0", ["lines"]))


class Thread:
    """A member; its id is its name, so that answers can be compared."""

    def __init__(self, exchange: Exchange, group_id: str, name: str, version: int = NEWEST, **about: Any) -> None:
        self.exchange = exchange
        self.group_id = group_id
        self.name = name
        self.version = version
        self.about = about

    def beat(self, step: str | None, epoch: int, **fields: Any) -> Any:
        usual = {
            "group_id": self.group_id,
            "member_id": self.name,
            "member_epoch": epoch,
            "endpoint_information_epoch": 0,
        }
        joining = {
            "rebalance_timeout_ms": 60_000,
            "topology": PLAIN,
            "process_id": f"process of {self.name}",
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
        about = {**joining, **self.about} if epoch == 0 else {}
        if "instance_id" in self.about:
            about["instance_id"] = self.about["instance_id"]
        return self.exchange.ask(step, StreamsGroupHeartbeatRequest(**{**usual, **about, **fields}), self.version)


def owning(active: dict[str, list[int]], standby: dict[str, list[int]] | None = None) -> dict[str, Any]:
    def structs(tasks: dict[str, list[int]]) -> list[TaskIds]:
        return [TaskIds(subtopology_id=name, partitions=partitions) for name, partitions in tasks.items()]

    return {"active_tasks": structs(active), "standby_tasks": structs(standby or {}), "warmup_tasks": []}


NOTHING = owning({})


def described(exchange: Exchange, step: str, group_id: str, version: int = NEWEST, *, topology: bool = False) -> None:
    asked = StreamsGroupDescribeRequest(
        group_ids=[group_id], include_authorized_operations=True, include_topology_description=topology
    )
    exchange.ask(step, asked, version)


def no_sense(exchange: Exchange, version: int) -> None:
    """Requests that are wrong by themselves."""
    me = Thread(exchange, f"nonsense-v{version}", "me", version)
    for about, fields in {
        "no group": {"group_id": ""},
        "a blank group": {"group_id": " "},
        "no member id": {"member_id": ""},
        "a blank instance": {"instance_id": " "},
        "a blank rack": {"rack_id": ""},
        "no rebalance timeout": {"rebalance_timeout_ms": -1},
        "no active tasks": {"active_tasks": None},
        "active tasks": owning({"0": [1]}),
        "standby tasks": owning({}, {"0": [1]}),
        "no topology": {"topology": None},
        "a regular expression": {"topology": topology(subtopology("0", ["lines"], regex=["l.*"]))},
        "a changelog of a fixed size": {"topology": topology(subtopology("0", ["lines"], changelogs=[("c", 3)]))},
        "an internal topic": {"topology": topology(subtopology("0", ["__consumer_offsets", "lines"]))},
        "topics that cannot exist": {"topology": topology(subtopology("0", ["no name!", ""]))},
        "no input": {"topology": topology(subtopology("0", []))},
        "a loop": {"topology": topology(subtopology("0", [], rereads=["again"], writes=["again"]))},
        "two subtopologies of one id": {"topology": topology(subtopology("0", ["lines"]), subtopology("0", ["lines"]))},
        "a topic that nobody writes": {"topology": topology(subtopology("0", ["lines"], rereads=["again"]))},
    }.items():
        me.beat(f"a member joins with {about}", 0, **fields)
    for epoch in (-3, -2, -1, 1):
        me.beat(f"nobody sends epoch {epoch}", epoch)
    me.beat("nobody leaves an instance for a while", -2, instance_id="one")
    me.beat("a topology comes too late", 1, topology=PLAIN)
    me.beat("tasks of one kind only", 1, active_tasks=[])
    described(exchange, "the group is not there", me.group_id, version)
    described(exchange, "a group without a name", "", version)


def lives(exchange: Exchange, version: int) -> None:
    me = Thread(exchange, f"lives-v{version}", "me", version, rack_id="rack")
    me.beat("a member joins", 0)
    described(exchange, "the group", me.group_id, version, topology=True)
    me.beat("it sends a heartbeat", 2)
    me.beat("it says what it has", 2, **owning({"0": [0, 1, 2, 3]}))
    me.beat("it has tasks that do not exist", 2, **owning({"0": [4]}))
    me.beat("it has tasks of another topology", 2, **owning({"1": [0]}))
    me.beat("it is in another rack", 2, rack_id="other rack")
    me.beat("it tells of its disk", 3, task_offsets=[TaskOffset(subtopology_id="0", partition=1, offset=7)])
    me.beat("it joins again", 0)
    described(exchange, "the group then", me.group_id, version)
    me.beat("it leaves", -1)
    described(exchange, "the group without members", me.group_id, version)
    me.beat("it goes on all the same", 5)
    me.beat("it comes back", 0)
    me.beat(None, -1)


def epochs(exchange: Exchange) -> None:
    me = Thread(exchange, "epochs", "me")
    me.beat(None, 0)
    for epoch in (1, 3, 0x7FFF_FFFF):
        me.beat(f"a member sends epoch {epoch} instead of 2", epoch)
        me.beat(f"a member sends epoch {epoch} instead of 2 and has its tasks", epoch, **owning({"0": [0]}))
    other = Thread(exchange, me.group_id, "other")
    other.beat("who is no member sends a heartbeat", 2)
    other.beat("who is no member leaves", -1)
    others = [Thread(exchange, me.group_id, name) for name in "abc"]
    for one in others:
        one.beat("one more joins" if one.name == "c" else None, 0)
    for one in (*others[:2], me):
        one.beat(None, -1)


def topologies(exchange: Exchange) -> None:
    me = Thread(exchange, "topologies", "me")
    me.beat("a member joins with a topology of epoch 2", 0, topology=topology(subtopology("0", ["lines"]), epoch=2))
    other = Thread(exchange, "topologies", "other")
    other.beat("another topology of the same epoch", 0, topology=topology(subtopology("0", ["others"]), epoch=2))
    other.beat("a newer topology", 0, topology=topology(subtopology("0", ["lines"]), epoch=3))
    other.beat("an older topology", 0, topology=topology(subtopology("9", ["others"]), epoch=1))
    described(exchange, "the group with a member of an older topology", "topologies")
    other.beat(None, -1)
    me.beat(None, -1)
    for number, (about, wrong) in enumerate(
        {
            "topics of different sizes": topology(
                subtopology("0", ["lines", "others"], together=[together([0, 1], [])])
            ),
            "a repartition topic of another size": topology(
                subtopology("0", ["lines"], writes=["fixed"]),
                subtopology("1", ["others"], rereads=[("fixed", 2)], together=[together([0], [0])]),
            ),
            "repartition topics of different sizes": topology(
                subtopology("0", ["lines"], writes=["one", "two"]),
                subtopology("1", [], rereads=[("one", 2), ("two", 3)], together=[together([], [0, 1])]),
            ),
            "a source topic that is not there": topology(
                subtopology("0", ["nowhere", "lines", "anywhere"], changelogs=["c"])
            ),
            "an existing topic of another size": topology(subtopology("0", ["lines"], changelogs=["others"])),
        }.items()
    ):
        one = Thread(exchange, f"wrong-{number}", "me")
        one.beat(f"a topology with {about}", 0, topology=wrong)
        one.beat(f"the member with {about} goes on", 2)
        described(exchange, f"the group of {about}", one.group_id)
        one.beat(None, -1)


def internal_topics(exchange: Exchange) -> None:
    changelog = TopicInfo(
        name="counts-changelog",
        partitions=0,
        replication_factor=1,
        topic_configs=[KeyValue(key="cleanup.policy", value="compact"), KeyValue(key="segment.ms", value="60000")],
    )
    words = topology(
        subtopology("0", ["lines", "others"], writes=["words"]),
        subtopology("1", [], rereads=["words"], changelogs=[changelog, "a-changelog", "b-changelog", "c-changelog"]),
    )
    me = Thread(exchange, "counting", "me", topology=words)
    me.beat("a member needs topics", 0)
    described(exchange, "the group whose topics are missing", "counting")
    for state in ("NotReady", "notready", "not_ready", "not ready"):
        exchange.ask(f"groups in the state {state!r}", ListGroupsRequest(states_filter=[state]), 5)
    me.exchange.wait_until(
        StreamsGroupHeartbeatRequest(
            group_id="counting", member_id="me", member_epoch=2, endpoint_information_epoch=0, **NOTHING
        ),
        NEWEST,
        lambda answer: answer.error_code != 0 or not answer.status,
    )
    me.beat("it joins again when they are there", 0)
    described(exchange, "the group whose topics are there", "counting")
    me.beat(None, -1)
    bad = TopicInfo(
        name="bad", partitions=0, replication_factor=0, topic_configs=[KeyValue(key="segment.ms", value="never")]
    )
    failing = Thread(exchange, "failing", "me", topology=topology(subtopology("0", ["lines"], changelogs=[bad])))
    failing.beat("a member needs a topic that cannot be created", 0)
    goes_on = StreamsGroupHeartbeatRequest(
        group_id="failing", member_id="me", member_epoch=2, endpoint_information_epoch=0, **NOTHING
    )
    exchange.wait_until(goes_on, NEWEST, lambda answer: "failed" in answer.status[0].status_detail)
    failing.beat("it is told why", 2)
    failing.beat(None, -1)


def two_members(exchange: Exchange) -> None:
    first, second = (Thread(exchange, "two", name) for name in "ab")
    first.beat(None, 0)
    second.beat("a second member joins", 0)
    described(exchange, "the group of two", "two")
    first.beat("the first one learns what it loses", 2)
    first.beat("it has not given it up", 2, **owning({"0": [0, 1, 2, 3]}))
    second.beat("the second one waits", 3, **NOTHING)
    first.beat("it gives it up", 2, **owning({"0": [0, 1]}))
    second.beat("the second one has it", 3, **NOTHING)
    described(exchange, "the stable group of two", "two")
    first.beat("the answer was lost", 2, **owning({"0": [0, 1]}))
    first.beat("the answer was lost and it has more", 2, **owning({"0": [0, 1, 2]}))
    second.beat(None, -1)
    first.beat("alone again", 3, **owning({"0": [0, 1]}))
    described(exchange, "the group of one", "two")
    first.beat(None, -1)


def configure(exchange: Exchange, group_id: str, **configs: str) -> None:
    resource = IncrementalAlterConfigsRequest.Resource
    changes = [
        resource.Config(name=f"streams.{name.replace('_', '.')}", config_operation=0, value=value)
        for name, value in configs.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=32, resource_name=group_id, configs=changes)], validate_only=False
    )
    exchange.ask(None, request, 1)


def delays(exchange: Exchange) -> None:
    configure(exchange, "delayed", initial_rebalance_delay_ms="600000")
    first, second = (Thread(exchange, "delayed", name) for name in "ab")
    first.beat("the first member of a group that waits for more", 0)
    second.beat("the second one", 0)
    first.beat("the first one goes on and waits", 1)
    described(exchange, "the group that waits for more", "delayed")
    second.beat("the second one leaves", -1)
    first.beat("the first one leaves, too", -1)
    configure(exchange, "slow", assignment_interval_ms="15000")
    first, second = (Thread(exchange, "slow", name) for name in "ab")
    first.beat("the first member of a group that assigns seldom", 0)
    second.beat("another one has to wait", 0)
    described(exchange, "the group that assigns seldom", "slow")
    second.beat(None, -1)
    first.beat(None, -1)


def standby_tasks(exchange: Exchange) -> None:
    exchange.create_topic("state", partitions=4)
    stateful = topology(subtopology("0", ["lines"], changelogs=["state"]))
    configure(exchange, "standby", num_standby_replicas="1")
    first, second = (Thread(exchange, "standby", name, topology=stateful) for name in "ab")
    first.beat("a member joins a group with standby tasks", 0)
    second.beat("another joins", 0)
    described(exchange, "the group with standby tasks", "standby")
    first.beat("active tasks become standby tasks", 2, **owning({"0": [0, 1, 2, 3]}))
    first.beat("they have", 2, **owning({"0": [0, 1]}, {"0": [2, 3]}))
    second.beat("the other one is active now", 3, **owning({}, {"0": [0, 1]}))
    described(exchange, "the group with its standby tasks", "standby")
    first.beat("the first one leaves", -1)
    second.beat("standby tasks become active tasks", 3, **owning({"0": [2, 3]}, {"0": [0, 1]}))
    described(exchange, "the group of the other one", "standby")
    configure(exchange, "standby", num_standby_replicas="0")
    second.beat("the group has other configs", 4, **owning({"0": [0, 1, 2, 3]}))
    second.beat(None, -1)


def static_members(exchange: Exchange) -> None:
    me = Thread(exchange, "static", "me", instance_id="one")
    other = Thread(exchange, "static", "other", instance_id="one", process_id="process of me")
    me.beat("a static member joins", 0)
    me.beat("the static member joins again", 0)
    other.beat("another process has its instance", 0)
    other.beat("another process goes on with its instance", 2)
    other.beat("another process leaves with its instance", -1)
    me.beat("the static member leaves for a while", -2)
    described(exchange, "the group of an absent member", "static")
    other.beat("another process has its instance now", 0)
    me.beat("the first one goes on", 2)
    described(exchange, "the group with the other process", "static")
    other.beat("the static member leaves", -1)


def tags_and_endpoints(exchange: Exchange) -> None:
    configure(exchange, "tagged", rack_aware_assignment_tags="zone,cluster")
    me = Thread(exchange, "tagged", "a", client_tags=[KeyValue(key="zone", value="x")])
    me.beat("a member without a tag", 0)
    Thread(exchange, "tagged", "a", 0).beat("the same in the first version", 2)
    described(exchange, "the group with tags", "tagged")
    me.beat(None, -1)
    first = Thread(exchange, "endpoints", "a", user_endpoint=Endpoint(host="one", port=1))
    second = Thread(exchange, "endpoints", "b", user_endpoint=Endpoint(host="two", port=2))
    first.beat("a member with an endpoint", 0)
    first.beat("it knows nothing yet", 2, endpoint_information_epoch=-1)
    second.beat("another with an endpoint", 0)
    first.beat("it is told of the other one", 2, **owning({"0": [0, 1, 2, 3]}))
    first.beat("it has given up two", 2, **owning({"0": [0, 1]}))
    second.beat("the other one has them", 3, **NOTHING)
    first.beat("it is told where they are", 3, endpoint_information_epoch=1)
    first.beat("it has another endpoint", 3, user_endpoint=Endpoint(host="new", port=65_535))
    described(exchange, "the group with endpoints", "endpoints")
    second.beat(None, -1)
    first.beat(None, -1)


def shutdown(exchange: Exchange) -> None:
    first, second = (Thread(exchange, "ends", name) for name in "ab")
    first.beat(None, 0)
    second.beat(None, 0)
    first.beat("a member shuts the application down", 2, shutdown_application=True)
    second.beat("another member is told so", 3)
    first.beat(None, -1, shutdown_application=True)
    second.beat(None, -1)
    first.beat("the application starts again", 0)
    first.beat(None, -1)


def offsets(exchange: Exchange) -> None:
    me = Thread(exchange, "commits", "me")
    me.beat(None, 0)

    def commit(step: str, epoch: int, member_id: str = "me", version: int = 9) -> None:
        partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=5)
        one = OffsetCommitRequest.Topic(name="lines", partitions=[partition])
        request = OffsetCommitRequest(
            group_id="commits", generation_id_or_member_epoch=epoch, member_id=member_id, topics=[one]
        )
        exchange.ask(step, request, version)

    def fetch(step: str, epoch: int, member_id: str | None) -> None:
        one = OffsetFetchRequest.Group.Topic(name="lines", partition_indexes=[0])
        group = OffsetFetchRequest.Group(group_id="commits", member_id=member_id, member_epoch=epoch, topics=[one])
        exchange.ask(step, OffsetFetchRequest(groups=[group]), 9)

    commit("the member commits", 2)
    commit("the member commits in an old version", 2, version=8)
    commit("the member commits in an epoch before", 1)
    commit("the member commits in an epoch to come", 3)
    commit("who is no member commits", 2, "other")
    commit("an administrator commits", -1, "")
    fetch("the member fetches", 2, "me")
    fetch("the member fetches in an epoch before", 1, "me")
    fetch("who is no member fetches", 2, "other")
    fetch("an administrator fetches", -1, None)
    other = Thread(exchange, "commits", "other")
    other.beat(None, 0)
    me.beat(None, 2, **owning({"0": [0, 1]}))
    commit("the member commits in the epoch of its tasks", 2)
    other.beat(None, -1)
    delete = OffsetDeleteRequest(
        group_id="commits",
        topics=[
            OffsetDeleteRequest.Topic(name=name, partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=0)])
            for name in ("lines", "others")
        ],
    )
    exchange.ask("offsets of what is read and of what is not are deleted", delete, 0)
    me.beat(None, -1)
    commit("an administrator commits to the empty group", -1, "")
    exchange.ask("offsets of the empty group are deleted", delete, 0)


def administration(exchange: Exchange) -> None:
    me = Thread(exchange, "managed", "me")
    me.beat(None, 0)
    exchange.ask_each(
        "it is no classic group", DescribeGroupsRequest(groups=["managed"], include_authorized_operations=False)
    )
    exchange.ask(
        "it is no consumer group",
        ConsumerGroupDescribeRequest(group_ids=["managed"], include_authorized_operations=False),
        1,
    )
    exchange.ask("it is listed", ListGroupsRequest(states_filter=["Stable"], types_filter=["streams"]), 5)
    exchange.ask("groups without members are listed", ListGroupsRequest(states_filter=["Empty"]), 5)
    exchange.ask("it is deleted", DeleteGroupsRequest(groups_names=["managed"]), 2)
    description = TopologyDescription(subtopologies=[], global_stores=[])
    update = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id="managed", member_id="me", topology_epoch=0, topology_description=description
    )
    exchange.ask("its topology is described", update, 0)
    classic = Member(exchange, "managed", "a")
    classic.join("a classic member joins")
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="managed",
        member_id="b",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["lines"],
        topic_partitions=[],
    )
    exchange.ask("a consumer joins", consumer, 1)
    me.beat(None, -1)
    exchange.ask("a consumer joins the empty group", consumer, 1)
    exchange.ask("it is deleted without members", DeleteGroupsRequest(groups_names=["managed"]), 2)
    described(exchange, "the deleted group", "managed")
    exchange.ask("a consumer joins the deleted group", consumer, 1)
    me.beat("a member joins a consumer group", 0)
