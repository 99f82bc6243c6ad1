"""Metrics of two brokers in one cluster: one is the controller, the other a member that follows it and is followed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.membership.cluster_membership import ClusterMembership
from broker.replication.replication import Replication
from config.resources import ConfigResource
from protocol.errors import ErrorCode
from protocol.messages.reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.topics import CreateTopicsRequest
from tests.support.altered_configs import configure
from tests.support.batches import produced
from tests.support.broker import WITH_CONTROLLER_LISTENER, InProcessBroker, running_broker, running_member
from tests.support.leadership import create_replicated_topic
from tests.support.metrics import now, scrape, shown, up
from tests.support.requests import produce_request

FEW_INTERNAL = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}
RAFT = "kafka_server_raft_metrics"
MEMBER = "ottla_member"
CONTROLLER = "kafka_controller_kafkacontroller"
TOPICS = "kafka_server_brokertopicmetrics"
FETCHER = '{broker_id="1",fetcher_id="0"}'
COUNTED = (
    "connection_creation_total",
    "connection_close_total",
    "incoming_byte_total",
    "outgoing_byte_total",
    "request_total",
    "response_total",
)


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[InProcessBroker]:
    """Node 1, with the controller."""
    with running_broker(
        tmp_path / "primary",
        **WITH_CONTROLLER_LISTENER,
        replica_lag_time_max_ms=2_000,
        **FEW_INTERNAL,
    ) as broker:
        yield broker


@pytest.fixture
def member(tmp_path: Path, primary: InProcessBroker) -> Iterator[InProcessBroker]:
    """Node 2, whose controller is node 1."""
    with running_member(tmp_path / "member", primary, **FEW_INTERNAL) as broker:
        assert scrape(broker)[f"{MEMBER}_fenced"] == 0
        yield broker


def until(broker: InProcessBroker, condition: Callable[[], bool], *, step_ms: int = 20) -> None:
    """Let time pass for all brokers until ``condition`` holds."""

    def holds() -> bool:
        broker.advance(step_ms)
        return condition()

    broker.wait_until(holds)


def partition(name: str, index: int = 0, topic: str = "orders") -> str:
    return f'{name}{{topic="{topic}",partition="{index}"}}'


def led_and_followed(primary: InProcessBroker, member: InProcessBroker) -> None:
    """The topic `orders`, of which each broker leads a partition and follows the other."""
    create_replicated_topic(primary, "orders", (1, 2), (2, 1))
    until(
        primary, lambda: all(len(list(each.server.components.replicas.partitions())) == 2 for each in (primary, member))
    )
    fetchers = [replication(broker).fetchers for broker in (primary, member)]
    until(primary, lambda: all(one.fetcher.stats.requests for each in fetchers for one in each.running))
    assert [len(each.running) for each in fetchers] == [1, 1]


def membership(broker: InProcessBroker) -> ClusterMembership:
    found = broker.server.metric_sources.membership
    assert found is not None, "its controllers are other nodes"
    return found


def await_heartbeat(member: InProcessBroker) -> None:
    """Wait until the controller has answered another heartbeat."""
    last_ms = membership(member).member.answered_ms
    until(member, lambda: membership(member).member.answered_ms > last_ms)


def replication(broker: InProcessBroker) -> Replication:
    found = broker.server.components.replicas.replication
    assert found is not None, "there are other brokers"
    return found


def replicate(leader: InProcessBroker, follower: InProcessBroker, index: int, *values: bytes) -> int:
    """Append to `orders` with acks=all: all replicas have the records then. Returns the bytes of the batch."""
    before = leader.log("orders", index).size
    leader.produce("orders", *values, partition=index)
    until(leader, lambda: follower.log("orders", index).high_watermark == leader.log("orders", index).log_end_offset)
    size: int = leader.log("orders", index).size - before
    return size


def test_the_bytes_of_throttled_replicas_are_told(primary: InProcessBroker, member: InProcessBroker) -> None:
    led_and_followed(primary, member)
    for direction in ("leader", "follower"):
        configure(primary, ConfigResource.TOPIC, "orders", f"{direction}.replication.throttled.replicas", "*")
    follower = replication(member).throttles
    assert follower is not None
    until(primary, lambda: "orders" in follower.follower.partitions)
    replicate(primary, member, 0, bytes(5_000))
    assert scrape(primary)["kafka_server_leaderreplication_byte_rate"] > 0
    assert scrape(member)["kafka_server_followerreplication_byte_rate"] > 0


def test_a_member_observes_the_metadata_log_and_its_controller_counts_it(
    primary: InProcessBroker, member: InProcessBroker
) -> None:
    with shown(member, {f"{RAFT}_high_watermark": up(2), f"{RAFT}_log_end_offset": up(2)}):
        create_replicated_topic(primary, "orders", (1,))
        end = primary.server.components.raft.high_watermark
        until(primary, lambda: membership(member).raft.high_watermark == end)
    of_leader, of_observer = scrape(primary), scrape(member)
    for name in (RAFT, "kafka_server_raftmetrics"):
        assert of_leader[f"{name}_number_of_observers"] == 1
        assert of_observer.get(f"{name}_number_of_observers") is None, "as in Kafka: the leader knows them"
        assert of_observer[f"{name}_current_vote"] == -1
        assert of_observer[f"{name}_fetch_records_rate"] > 0
        assert math.isnan(of_observer[f"{name}_commit_latency_max"])
        for same in ("current_leader", "current_epoch", "high_watermark", "log_end_offset", "log_end_epoch"):
            assert of_observer[f"{name}_{same}"] == of_leader[f"{name}_{same}"]
    assert of_observer[f'{RAFT}_current_state{{state="observer"}}'] == 1
    assert of_observer["kafka_server_metadataloader_currentcontrollerid"] == 1
    for name in ("kafka_server_broker_metadata_metrics", "kafka_server_brokermetadatametrics"):
        for same in ("last_applied_record_offset", "last_applied_record_timestamp"):
            assert of_observer[f"{name}_{same}"] == of_leader[f"{name}_{same}"]
        with shown(member, {f"{name}_last_applied_record_lag_ms": up(300)}):
            primary.advance(300)
    assert of_observer["kafka_server_brokermetadatalistener_metadatabatchsizes_count"] > 0
    assert of_observer.get(f"{CONTROLLER}_activecontrollercount") is None
    assert of_observer["kafka_brokers"] == 2


def test_a_member_tells_of_its_heartbeats_and_is_fenced_when_they_are_not_answered(
    primary: InProcessBroker, member: InProcessBroker
) -> None:
    page = scrape(member)
    assert page[f"{MEMBER}_controllers_reachable"] == 1
    assert page[f"{MEMBER}_registrations_total"] == 1
    assert page[f"{MEMBER}_broker_epoch"] == primary.server.metadata.image.cluster.brokers[2].broker_epoch
    assert page[f"{MEMBER}_forwarding_failed_total"] == 0
    assert page["kafka_server_forwardingmanager_queuelength"] == 0
    assert page["kafka_server_assignmentsmanager_queuedreplicatodirassignments"] == 0
    with shown(member, {f"{MEMBER}_heartbeats_total": up()}):
        await_heartbeat(member)
    primary.advance(700)
    assert 700 <= scrape(member)[f"{MEMBER}_heartbeat_age_ms"] < 1_000
    assert 700 <= scrape(primary)[f'{CONTROLLER}_timesincelastheartbeatreceivedms{{broker="2"}}'] < 1_000
    assert scrape(primary)[f'{CONTROLLER}_brokerregistrationstate{{broker="2"}}'] == 30
    assert scrape(primary)[f'{CONTROLLER}_timesincelastheartbeatreceivedms{{broker="1"}}'] == 0
    with shown(
        primary,
        {
            f"{CONTROLLER}_timedoutbrokerheartbeatcount": up(1),
            f"{CONTROLLER}_fencedbrokercount": now(1),
            f"{CONTROLLER}_activebrokercount": now(1),
            f'{CONTROLLER}_brokerregistrationstate{{broker="2"}}': now(10),
        },
    ):
        member.run(membership(member).close())  # no heartbeat comes any more
        until(primary, lambda: primary.server.metadata.image.cluster.brokers[2].fenced, step_ms=500)


def test_what_a_broker_replicates_is_no_traffic_of_the_topic(primary: InProcessBroker, member: InProcessBroker) -> None:
    led_and_followed(primary, member)
    replicate(primary, member, 0, b"one")  # then the topic has series
    before = scrape(member)
    own = {name: before[f'{TOPICS}_{name}_total{{topic="orders"}}'] for name in ("bytesin", "messagesin", "bytesout")}
    replicated = member.log("orders", 0).size
    size = replicate(primary, member, 0, b"two", b"three")
    page = scrape(member)
    assert {name: page[f'{TOPICS}_{name}_total{{topic="orders"}}'] for name in own} == own == dict.fromkeys(own, 0)
    assert page[f"{TOPICS}_replicationbytesin_total"] == replicated + size
    of_leader = scrape(primary)
    assert of_leader[f"{TOPICS}_replicationbytesout_total"] == replicated + size
    assert of_leader[f'{TOPICS}_messagesin_total{{topic="orders"}}'] == 3
    assert of_leader[f'{TOPICS}_bytesout_total{{topic="orders"}}'] == 0
    assert of_leader['kafka_network_requestmetrics_totaltimems_count{request="FetchFollower"}'] > 0
    # And the other way round.
    size = replicate(member, primary, 1, b"four")
    assert scrape(member)[f"{TOPICS}_replicationbytesout_total"] == size
    assert scrape(primary)[f"{TOPICS}_replicationbytesin_total"] == size


def test_replicas_are_counted_where_they_are_led(primary: InProcessBroker, member: InProcessBroker) -> None:
    led_and_followed(primary, member)
    for broker, led, followed in ((primary, 0, 1), (member, 1, 0)):
        page = scrape(broker)
        assert page["kafka_server_replicamanager_leadercount"] == 1
        assert page["kafka_server_replicamanager_partitioncount"] == 2
        for name, value in (("replicascount", 2), ("insyncreplicascount", 2), ("atminisr", 0), ("underreplicated", 0)):
            assert page[partition(f"kafka_cluster_partition_{name}", led)] == value
            assert page[partition(f"kafka_cluster_partition_{name}", followed)] == 0
        assert page[partition("kafka_cluster_partition_laststableoffsetlag", followed)] == 0
    assert scrape(primary)[f"{CONTROLLER}_globalpartitioncount"] == 2


def test_an_isr_that_the_leader_has_changed_is_counted(primary: InProcessBroker, member: InProcessBroker) -> None:
    led_and_followed(primary, member)
    manager = "kafka_server_replicamanager"
    counted = primary.server.components.replicas.stats
    with shown(primary, {f"{manager}_isrshrinks_total": up(1), f"{manager}_underreplicatedpartitions": now(1)}):
        member.run(replication(member).fetchers.close())  # the broker is alive, and fetches nothing
        primary.ask(produce_request("orders", produced(), acks=1), 12)
        until(primary, lambda: counted.isr_shrinks > 0, step_ms=100)
    assert scrape(primary)[f"{manager}_isrexpands_total"] == 0


def test_an_isr_that_the_controller_has_changed_is_not_counted(
    primary: InProcessBroker, member: InProcessBroker
) -> None:
    led_and_followed(primary, member)
    manager = "kafka_server_replicamanager"
    with shown(primary, {f"{manager}_underreplicatedpartitions": now(2), f"{manager}_leadercount": now(2)}):
        member.run(membership(member).close())
        until(primary, lambda: scrape(primary)[f"{manager}_underreplicatedpartitions"] == 2, step_ms=500)
    assert scrape(primary)[f"{manager}_isrshrinks_total"] == 0


def test_a_member_has_series_of_its_own_replicas_only(primary: InProcessBroker, member: InProcessBroker) -> None:
    led_and_followed(primary, member)
    create_replicated_topic(primary, "clicks", (1,))
    until(primary, lambda: "clicks" in member.server.metadata.image.topics.by_name)
    assert scrape(primary)[partition("kafka_topic_partition_leader", topic="clicks")] == 1
    page = scrape(member)
    assert page.get(partition("kafka_topic_partition_leader", topic="clicks")) is None
    assert page.get('kafka_topic_partitions{topic="clicks"}') is None
    assert page[partition("kafka_topic_partition_leader")] == 1
    assert page['kafka_topic_partitions{topic="orders"}'] == 2


def test_fetchers_tell_what_they_fetch_and_how_far_they_are_behind(
    primary: InProcessBroker, member: InProcessBroker
) -> None:
    led_and_followed(primary, member)
    (running,) = replication(member).fetchers.running
    name = "ReplicaFetcherThread-0-1"
    of_fetcher = f'{{clientId="{name}",broker="{running.peer.endpoint.host}:{running.peer.endpoint.port}"}}'
    lag = f'kafka_server_fetcherlagmetrics_consumerlag{{clientId="{name}",topic="orders",partition="0"}}'
    stats = "kafka_server_fetcherstats"
    counted = {
        f"kafka_server_replica_fetcher_metrics_{one}{FETCHER}": up() for one in COUNTED if one[:10] != "connection"
    }
    size = replicate(primary, member, 0, b"one")
    with shown(
        member, {f"{stats}_bytes_total{of_fetcher}": up(size), f"{stats}_requests_total{of_fetcher}": up(), **counted}
    ):
        assert replicate(primary, member, 0, b"two") == size
    page = scrape(member)
    assert page[lag] == 0
    assert page[f"kafka_server_replica_fetcher_metrics_connection_count{FETCHER}"] == 1
    assert page[f"kafka_server_replica_fetcher_metrics_connection_creation_total{FETCHER}"] == 1
    assert page[f"kafka_server_replica_fetcher_metrics_connection_close_total{FETCHER}"] == 0
    manager = 'kafka_server_replicafetchermanager_{}{{clientId="Replica"}}'.format
    assert page[manager("minfetchrate")] > 0
    followed = running.fetcher.followed(member.log("orders", 0).topic_partition)
    assert followed is not None
    with shown(member, {lag: now(7), manager("maxlag"): now(7)}):
        followed.lag = 7
    with shown(member, {manager("failedpartitionscount"): now(1)}):
        running.fetcher._log_once(followed, "the leader has sent nonsense")
    assert page[manager("deadthreadcount")] == 0
    moving = 'kafka_server_replicaalterlogdirsmanager_{}{{clientId="ReplicaAlterLogDirs"}}'.format
    assert {page[moving(one)] for one in ("maxlag", "minfetchrate", "failedpartitionscount", "deadthreadcount")} == {0}


def test_fetches_of_followers_that_find_nothing_expire(primary: InProcessBroker, member: InProcessBroker) -> None:
    led_and_followed(primary, member)
    replicate(primary, member, 0, b"one")
    expires = "kafka_server_delayedfetchmetrics_expires_total"
    with shown(primary, {f'{expires}{{fetcherType="follower"}}': up()}):
        until(primary, lambda: primary.server.components.replicas.stats.follower_fetches_expired > 2, step_ms=500)
    assert scrape(primary)[f'{expires}{{fetcherType="consumer"}}'] == 0


def test_bytes_of_reassignments_are_told_apart(primary: InProcessBroker, member: InProcessBroker) -> None:
    create_replicated_topic(primary, "orders", (1,))
    until(primary, lambda: primary.server.components.replicas.find("orders", 0) is not None)
    primary.produce("orders", b"one", b"two")
    size = primary.log("orders").size
    topic = AlterPartitionReassignmentsRequest.Topic
    move = topic.Partition(partition_index=0, replicas=[1, 2])
    primary.ask(
        AlterPartitionReassignmentsRequest(topics=[topic(name="orders", partitions=[move])], timeout_ms=1_000), 0
    )
    until(primary, lambda: member.server.metadata.image.topics.by_name["orders"].partitions[0].isr == (1, 2))
    assert scrape(primary)[f"{TOPICS}_reassignmentbytesout_total"] == size
    assert scrape(member)[f"{TOPICS}_reassignmentbytesin_total"] == size
    assert scrape(primary)["kafka_server_replicamanager_isrexpands_total"] == 1
    assert scrape(primary)["kafka_server_replicamanager_reassigningpartitions"] == 0
    later = replicate(primary, member, 0, b"three")
    assert scrape(primary)[f"{TOPICS}_reassignmentbytesout_total"] == size, "it is an ordinary replica now"
    assert scrape(member)[f"{TOPICS}_replicationbytesin_total"] == size + later


def test_connections_to_controllers_are_told_of_by_their_purpose(
    primary: InProcessBroker, member: InProcessBroker
) -> None:
    channels = {
        "heartbeat": '{BrokerId="2"}',
        "raft_channel": "",
        "forwarding": '{BrokerId="2"}',
    }
    wanted = CreateTopicsRequest.Topic(
        name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    expected = {
        f"kafka_server_{channel}_metrics_{name}{labels}": up()
        for channel, labels in channels.items()
        for name in COUNTED
        if name[:10] != "connection"
    }
    with shown(member, {**expected, 'kafka_server_forwarding_metrics_connection_creation_total{BrokerId="2"}': up(1)}):
        client = member.connect()
        client.send(CreateTopicsRequest(topics=[wanted], timeout_ms=1_000), 7)
        until(primary, lambda: "orders" in member.server.metadata.image.topics.by_name)
        assert client.receive().topics[0].error_code == ErrorCode.NONE
        await_heartbeat(member)


def test_each_purpose_of_connections_has_its_series(primary: InProcessBroker, member: InProcessBroker) -> None:
    for channel, stats in member.server.metric_sources.channels.items():
        name = f"kafka_server_{channel.lower().replace('-', '_')}_metrics"
        labels = "" if channel.endswith("-channel") else '{BrokerId="2"}'
        ours = f'{{channel="{channel}"}}'
        with shown(
            member,
            {
                f"{name}_connection_count{labels}": up(2),
                f"{name}_connection_creation_total{labels}": up(3),
                f"{name}_connection_close_total{labels}": up(1),
                f"{name}_incoming_byte_total{labels}": up(),
                f"{name}_outgoing_byte_total{labels}": up(),
                f"{name}_request_total{labels}": up(),
                f"{name}_response_total{labels}": up(),
                f"ottla_peers_connections_failed_total{ours}": up(1),
                f"ottla_peers_requests_timed_out_total{ours}": up(1),
                f"ottla_peers_requests_in_flight{ours}": up(50),
            },
        ):
            stats.connections_made += 3
            stats.connections_closed += 1
            stats.bytes_in += 1_000
            stats.bytes_out += 1_000
            stats.requests_sent += 1_000
            stats.requests_answered += 1_000
            stats.connections_failed += 1
            stats.requests_timed_out += 1
            stats.requests_in_flight += 50


def test_a_member_whose_controller_is_gone_says_so(primary: InProcessBroker, member: InProcessBroker) -> None:
    heartbeat = 'ottla_peers_connections_failed_total{channel="heartbeat"}'
    with shown(
        member,
        {
            f"{MEMBER}_controllers_reachable": now(0),
            f"{MEMBER}_heartbeats_failed_total": up(),
        },
    ):
        for processor in primary.server.socket_server.processors:
            for connection in list(processor):
                connection.close()
        for acceptor in primary.server.socket_server.acceptors:
            acceptor.close()
        until(primary, lambda: bool(membership(member).member.stats.heartbeats_failed), step_ms=500)
    assert scrape(member).get(heartbeat) is not None
