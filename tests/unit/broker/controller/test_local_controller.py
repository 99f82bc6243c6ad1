"""LocalController: its two images, leaders after each kind of stop, and when requests are answered."""

import pytest

from broker.controller.topic_creation import NewTopic
from broker.controller.topic_deletion import UnwantedTopic
from broker.metadata.configs import ConfigView
from broker.metadata.image.records import InconsistentMetadata
from broker.metadata.producer_ids import ProducerIds
from config.described import ConfigSource, describe_topic
from config.release_versions import NEWEST
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import (
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
)
from storage.topic_partition import TopicPartition
from tests.unit.broker.metadata.metadata_node import MetadataNode


def errors(results):
    return [(result.name, result.error) for result in results]


def test_a_topic_is_answered_once_it_is_durable_and_subscribers_know_it(tmp_path):
    node = MetadataNode(tmp_path)
    answers = []
    node.controller.create_topics(
        [NewTopic(name="orders", partitions=2)],
        timeout_ms=1000,
        validate_only=False,
        then=lambda results: answers.append((errors(results), len(node.deltas))),
    )
    assert answers == []
    node.worker.work()

    assert answers == [([("orders", ErrorCode.NONE)], 1)]
    assert len(node.image.topics.by_name["orders"].partitions) == 2


def test_of_two_requests_in_one_turn_the_second_sees_the_first(tmp_path):
    node = MetadataNode(tmp_path)

    first = node.create(NewTopic(name="orders"))
    second = node.create(NewTopic(name="orders"))
    deleted = node.delete(UnwantedTopic(name="orders"))
    third = node.create(NewTopic(name="orders"))
    assert (first, second, deleted, third) == ([], [], [], [])
    assert node.image.topics.by_name == {}
    node.worker.work()

    assert errors(first) == [("orders", ErrorCode.NONE)]
    assert errors(second) == [("orders", ErrorCode.TOPIC_ALREADY_EXISTS)]
    assert errors(deleted) == [("orders", ErrorCode.NONE)]
    assert errors(third) == [("orders", ErrorCode.NONE)]
    assert node.image.topics.by_name["orders"].topic_id == third[0].topic_id != first[0].topic_id


def test_validating_gives_an_id_and_creates_nothing(tmp_path):
    node = MetadataNode(tmp_path)

    (result,) = node.create(NewTopic(name="orders", partitions=4), validate_only=True)

    assert (result.error, result.partitions) == (ErrorCode.NONE, 4)
    assert any(result.topic_id)
    node.worker.work()
    assert node.image.topics.by_name == {}


def test_a_timeout_of_nothing_creates_and_deletes_nothing(tmp_path):
    node = MetadataNode(tmp_path)
    node.create(NewTopic(name="there"))
    node.worker.work()

    created = node.create(NewTopic(name="orders"), timeout_ms=0)
    deleted = node.delete(UnwantedTopic(name="there"), timeout_ms=-1)
    node.worker.work()

    assert errors(created) == [("orders", ErrorCode.REQUEST_TIMED_OUT)]
    assert errors(deleted) == [("there", ErrorCode.REQUEST_TIMED_OUT)]
    assert list(node.image.topics.by_name) == ["there"]


def test_topics_can_not_be_deleted_where_that_is_turned_off(tmp_path):
    node = MetadataNode(tmp_path, delete_topic_enable=False)
    node.create(NewTopic(name="orders"))

    assert errors(node.delete(UnwantedTopic(name="orders"))) == [("orders", ErrorCode.TOPIC_DELETION_DISABLED)]


def test_the_brokers_settings_fill_in_what_a_topic_leaves_open(tmp_path):
    node = MetadataNode(tmp_path, num_partitions=3)

    node.controller.auto_create(["a", "b", "a"])
    node.controller.auto_create(["b", "no good", "__cluster_metadata"])
    node.worker.work()

    assert {name: len(topic.partitions) for name, topic in node.image.topics.by_name.items()} == {"a": 3, "b": 3}


def test_internal_topics_come_as_their_owners_need_them(tmp_path):
    node = MetadataNode(tmp_path, offsets_topic_num_partitions=4, transaction_state_log_num_partitions=2)

    node.controller.auto_create(["__consumer_offsets", "__transaction_state"])
    node.worker.work()

    offsets = node.image.topics.by_name["__consumer_offsets"]
    transactions = node.image.topics.by_name["__transaction_state"]
    assert (len(offsets.partitions), offsets.is_internal) == (4, True)
    assert (len(transactions.partitions), transactions.is_internal) == (2, True)
    assert node.image.configs.of_topic("__consumer_offsets") == {
        "compression.type": "producer",
        "cleanup.policy": "compact",
        "segment.bytes": "104857600",
    }
    assert node.image.configs.of_topic("__transaction_state") == {
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


def epochs(node):
    return [
        (partition.leader, partition.leader_epoch, partition.isr)
        for topic in node.image.topics.by_name.values()
        for partition in topic.partitions
    ]


def test_a_new_cluster_has_the_features_it_was_formatted_with_and_this_node(tmp_path):
    node = MetadataNode(tmp_path)

    assert node.image.features.levels == NEWEST.levels
    registered = node.image.cluster.brokers[1]
    assert (registered.fenced, registered.log_dirs) == (False, [node.directory_id])
    assert [(point.name, point.host, point.port) for point in registered.end_points] == [
        ("PLAINTEXT", "127.0.0.1", 9092)
    ]
    assert registered.broker_epoch == node.controller.broker_epoch
    assert node.image.cluster.controllers[1].end_points[0].port == 9093


def test_leader_epochs_stay_after_a_clean_stop(tmp_path):
    node = MetadataNode(tmp_path)
    node.create(NewTopic(name="orders", partitions=2))
    node.stop()

    again = MetadataNode(tmp_path, was_clean=True)

    assert epochs(again) == [(1, 0, (1,)), (1, 0, (1,))]
    assert again.controller.broker_epoch > node.controller.broker_epoch


def test_every_leader_epoch_rises_by_one_after_an_unclean_stop(tmp_path):
    node = MetadataNode(tmp_path)
    node.create(NewTopic(name="orders", partitions=2))
    node.worker.work()

    again = MetadataNode(tmp_path, was_clean=False)

    assert epochs(again) == [(1, 1, (1,)), (1, 1, (1,))]
    assert epochs(MetadataNode(tmp_path, was_clean=False)) == [(1, 2, (1,)), (1, 2, (1,))]


def test_partitions_that_kafka_left_without_a_leader_get_this_node(tmp_path):
    node = MetadataNode(tmp_path)
    node.create(NewTopic(name="orders"))
    node.worker.work()
    topic_id = node.image.topics.by_name["orders"].topic_id
    left = PartitionChangeRecord(
        partition_id=0, topic_id=topic_id, leader=-1, isr=[], eligible_leader_replicas=[1], last_known_elr=[1]
    )
    node.log.append([(left, 2)], lambda: None)
    node.stop()

    again = MetadataNode(tmp_path, was_clean=True, registers=False)
    assert epochs(again) == [(-1, 1, ())]
    again.register(was_clean=True)

    assert epochs(again) == [(1, 2, (1,))]
    partition = again.image.topics.by_name["orders"].partition(0)
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())


def test_partitions_of_other_brokers_are_left_alone(tmp_path):
    node = MetadataNode(tmp_path)
    node.create(NewTopic(name="orders"))
    topic_id = node.controller.image.topics.by_name["orders"].topic_id
    moved = PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2, isr=[2], replicas=[2])
    node.log.append([(moved, 2)], lambda: None)
    node.worker.work()

    assert epochs(MetadataNode(tmp_path, was_clean=False)) == [(2, 1, (2,))]


def test_new_leader_epochs_reach_the_subscribers(tmp_path):
    node = MetadataNode(tmp_path)
    node.create(NewTopic(name="orders"))
    node.worker.work()

    again = MetadataNode(tmp_path, registers=False)
    changed = {}
    again.loader.publish_to(lambda delta, image: changed.update(delta.topics.changed_partitions))
    again.register(was_clean=False)

    assert {where: change.leader_epoch for where, change in changed.items()} == {TopicPartition("orders", 0): 1}


def test_a_transaction_that_its_node_left_open_is_aborted(tmp_path):
    node = MetadataNode(tmp_path)
    lost = ConfigRecord(resource_type=2, resource_name="x", name="retention.ms", value="5")
    node.log.append([(BeginTransactionRecord(name="half done"), 0), (lost, 0)], lambda: None)

    again = MetadataNode(tmp_path)

    assert not again.loader.is_in_transaction
    assert again.image.configs.of(2, "x") == {}
    again.create(NewTopic(name="orders"))
    again.worker.work()
    assert list(again.image.topics.by_name) == ["orders"]


def test_a_clean_stop_fences_the_node(tmp_path):
    node = MetadataNode(tmp_path)
    node.stop()

    assert MetadataNode(tmp_path, was_clean=True, registers=False).image.cluster.brokers[1].fenced


def test_no_producer_id_is_given_twice_even_if_the_node_is_killed(tmp_path):
    node = MetadataNode(tmp_path)
    got = []
    producer_ids = ProducerIds(node.allocate_producer_ids)
    producer_ids.assign(got.append, got.append)
    producer_ids.assign(got.append, got.append)
    assert got == []
    node.worker.work()
    assert got == [0, 1]

    again = MetadataNode(tmp_path)
    ProducerIds(again.allocate_producer_ids).assign(got.append, got.append)
    again.worker.work()

    assert got == [0, 1, 1000]


def test_a_topics_own_config_comes_before_the_brokers_and_that_before_the_default(tmp_path):
    node = MetadataNode(tmp_path, log_retention_ms=7, given={"log.retention.ms": "7"})
    node.create(NewTopic(name="orders", configs=[("segment.bytes", "2000000")]))
    dynamic = ConfigRecord(resource_type=4, resource_name="", name="log.retention.bytes", value="9")
    node.log.append([(dynamic, 0)], lambda: None)
    node.worker.work()
    configs = ConfigView(node.metadata, node.settings)

    config = configs.topic_config("orders")
    entries = describe_topic(node.image.configs.of_topic("orders"), configs.broker_texts())
    sources = {entry.name: entry.source for entry in entries}

    assert (config.segment_bytes, config.retention_ms, config.retention_bytes) == (2_000_000, 7, 9)
    assert (config.max_message_bytes, configs.log_defaults().segment_bytes) == (1_048_588, 1 << 30)
    assert sources["segment.bytes"] is ConfigSource.DYNAMIC_TOPIC
    assert sources["retention.bytes"] is ConfigSource.DYNAMIC_DEFAULT_BROKER
    assert sources["retention.ms"] is ConfigSource.STATIC_BROKER
    assert sources["max.message.bytes"] is ConfigSource.DEFAULT


def test_a_stored_config_that_is_not_valid_here_is_passed_over(tmp_path, caplog):
    node = MetadataNode(tmp_path)
    for name, value in (("retention.ms", "soon"), ("flush.ms", "5"), ("ottla.unknown", "1")):
        record = ConfigRecord(resource_type=2, resource_name="orders", name=name, value=value)
        node.log.append([(record, 0)], lambda: None)
    node.worker.work()

    config = ConfigView(node.metadata, node.settings).topic_config("orders")

    assert (config.flush_ms, config.retention_ms) == (5, 604_800_000)
    assert "retention.ms is 'soon'" in caplog.text


def test_a_record_that_does_not_fit_is_not_written_and_the_next_start_finds_a_sound_log(tmp_path):
    node = MetadataNode(tmp_path)
    image, end_offset = node.controller.image, node.log.end_offset

    with pytest.raises(InconsistentMetadata):
        node.controller.append(
            [
                ConfigRecord(resource_type=4, resource_name="2", name="min.insync.replicas", value="1"),
                ClearElrRecord(topic_name="2"),
            ]
        )

    assert (node.controller.image, node.log.end_offset) == (image, end_offset)
    answers = node.create(NewTopic(name="orders"))
    node.worker.work()
    assert errors(answers) == [("orders", ErrorCode.NONE)]
    node.stop()
    assert list(MetadataNode(tmp_path, was_clean=True).image.topics.by_name) == ["orders"]
