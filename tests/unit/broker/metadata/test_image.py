"""The image: what each kind of record does to it, and that its own records add up to it again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metadata.image import InconsistentMetadata, MetadataDelta, MetadataImage
from protocol.records.cluster_metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnknownRecord,
)
from storage.topic_partition import TopicPartition

ORDERS = bytes(15) + b"\x07"
DIRECTORY = bytes(15) + b"\x09"


def image_of(*records):
    image = MetadataImage()
    for record in records:
        image.replay(record)
    return image


def topic(name="orders", topic_id=ORDERS, partitions=1):
    yield TopicRecord(name=name, topic_id=topic_id)
    for index in range(partitions):
        yield PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY],
        )


def content(image):
    return [*image.records()]


def test_a_topic_is_found_by_name_and_by_id():
    image = image_of(*topic(partitions=2))

    assert image.topics_by_name["orders"] is image.topics_by_id[ORDERS]
    assert [partition.index for partition in image.topics_by_id[ORDERS].partitions] == [0, 1]
    assert image.topics_by_id[ORDERS].partition(1).directory_of(1) == DIRECTORY
    assert image.topics_by_id[ORDERS].partition(2) is None
    assert image.topics_by_id[ORDERS].partition(-1) is None


def test_partitions_may_come_in_any_order():
    name, first, second, third = topic(partitions=3)

    image = image_of(name, third, first, second)

    assert [partition.index for partition in image.topics_by_name["orders"].partitions] == [0, 1, 2]


def test_naming_a_leader_begins_a_leader_epoch_and_every_change_a_partition_epoch():
    image = image_of(*topic())

    image.replay(PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=1))
    image.replay(PartitionChangeRecord(partition_id=0, topic_id=ORDERS, isr=[]))

    partition = image.topics_by_id[ORDERS].partition(0)
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 2)
    assert partition.isr == ()
    assert partition.replicas == (1,)


def test_a_change_sets_exactly_the_fields_that_it_carries():
    image = image_of(*topic())

    image.replay(
        PartitionChangeRecord(
            partition_id=0,
            topic_id=ORDERS,
            isr=[2],
            leader=2,
            replicas=[2, 3],
            removing_replicas=[1],
            adding_replicas=[3],
            leader_recovery_state=1,
            directories=[DIRECTORY, bytes(16)],
            eligible_leader_replicas=[4],
            last_known_elr=[5],
        )
    )

    partition = image.topics_by_id[ORDERS].partition(0)
    assert (partition.isr, partition.leader, partition.replicas) == ((2,), 2, (2, 3))
    assert (partition.removing_replicas, partition.adding_replicas) == ((1,), (3,))
    assert partition.leader_recovery_state == 1
    assert partition.directories == (DIRECTORY, bytes(16))
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((4,), (5,))


def test_clearing_eligible_leaders_touches_only_partitions_that_have_some():
    image = image_of(*topic(partitions=2))
    image.replay(PartitionChangeRecord(partition_id=1, topic_id=ORDERS, eligible_leader_replicas=[1]))

    image.replay(ClearElrRecord(topic_name="orders"))

    first, second = image.topics_by_id[ORDERS].partitions
    assert (first.partition_epoch, second.partition_epoch) == (0, 2)
    assert second.eligible_leader_replicas == ()


def test_removing_a_topic_removes_its_configs_and_what_it_collides_with():
    image = image_of(*topic("my.orders"))
    image.replay(ConfigRecord(resource_type=2, resource_name="my.orders", name="retention.ms", value="5"))
    assert image.names_by_collision_key == {"my_orders": {"my.orders"}}

    image.replay(RemoveTopicRecord(topic_id=ORDERS))

    assert content(image) == []
    assert image.names_by_collision_key == {}
    assert image.topic_configs("my.orders") == {}


def test_a_config_without_a_value_is_deleted():
    image = image_of(
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"),
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value=None),
    )

    assert image.configs == {}


def test_a_feature_at_level_0_is_not_finalised():
    image = image_of(
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="group.version", feature_level=0),
    )

    assert image.features == {"metadata.version": 25}


def test_records_of_a_transaction_count_from_its_end():
    image = image_of(BeginTransactionRecord(name="bootstrap"), FeatureLevelRecord(name="x", feature_level=1))
    assert image.is_in_transaction
    assert image.features == {}

    delta = MetadataDelta()
    image.replay(EndTransactionRecord(), delta)

    assert image.features == {"x": 1}
    assert delta.features_changed
    assert not image.is_in_transaction


def test_records_of_an_aborted_transaction_never_count():
    image = image_of(
        BeginTransactionRecord(),
        *topic(),
        AbortTransactionRecord(reason="the controller is gone"),
    )

    assert content(image) == []


def test_what_is_not_understood_is_kept_in_the_order_of_arrival():
    first = UnknownRecord(key=99, version=0, raw=b"\x01\x63\x00first")
    second = UnknownRecord(key=0, version=9, raw=b"\x01\x00\x09second")
    image = image_of(first, *topic(), second, NoOpRecord())

    assert content(image)[-2:] == [first, second]
    assert NoOpRecord() not in content(image)


def test_access_control_entries_are_kept_until_they_are_removed():
    def entry(number):
        return AccessControlEntryRecord(
            id=bytes(15) + bytes([number]), resource_type=2, resource_name="t", pattern_type=3, principal="User:a",
            host="*", operation=3, permission_type=3,
        )  # fmt: skip

    image = image_of(entry(1), entry(2), RemoveAccessControlEntryRecord(id=bytes(15) + b"\x01"))

    assert content(image) == [entry(2)]


def test_a_quota_replaces_the_one_before_it_and_can_be_removed():
    def quota(value, remove=False):
        entity = [ClientQuotaRecord.Entity(entity_type="user", entity_name="a")]
        return ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=value, remove=remove)

    assert content(image_of(quota(1.0), quota(2.0))) == [quota(2.0)]
    assert content(image_of(quota(1.0), quota(0.0, remove=True))) == []


def test_a_registration_follows_its_changes():
    registered = RegisterBrokerRecord(
        broker_id=1, incarnation_id=ORDERS, broker_epoch=13, end_points=[], features=[], log_dirs=[DIRECTORY]
    )
    image = image_of(
        registered,
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=13, fenced=-1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=13, cordoned_log_dirs=[DIRECTORY]),
    )

    assert image.brokers[1].fenced is False
    assert image.brokers[1].cordoned_log_dirs == [DIRECTORY]
    assert image.brokers[1].log_dirs == [DIRECTORY]
    assert registered.fenced is True


@pytest.mark.parametrize(
    "record",
    [
        PartitionChangeRecord(partition_id=0, topic_id=bytes(16), leader=1),
        PartitionChangeRecord(partition_id=7, topic_id=ORDERS, leader=1),
        RemoveTopicRecord(topic_id=bytes(16)),
        TopicRecord(name="orders", topic_id=bytes(16)),
        BrokerRegistrationChangeRecord(broker_id=5, broker_epoch=1, fenced=1),
        EndTransactionRecord(),
        ClearElrRecord(topic_name="nope"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(record):
    image = image_of(*topic())

    with pytest.raises(InconsistentMetadata):
        image.replay(record)


def test_a_delta_names_what_changed():
    image = image_of(*topic("old"))
    delta = MetadataDelta()

    for record in topic("new", bytes(15) + b"\x08", partitions=2):
        image.replay(record, delta)
    image.replay(PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=1), delta)
    image.replay(ConfigRecord(resource_type=2, resource_name="old", name="retention.ms", value="5"), delta)

    assert list(delta.created_topics) == ["new"]
    assert [partition.index for partition in delta.created_topics["new"].partitions] == [0, 1]
    assert {where: change.leader_epoch for where, change in delta.changed_partitions.items()} == {
        TopicPartition("old", 0): 1
    }
    assert delta.changed_configs == {(2, "old")}
    assert delta.deleted_topics == []


def test_a_name_can_be_deleted_and_created_in_one_delta():
    image = image_of(*topic())
    delta = MetadataDelta()

    image.replay(RemoveTopicRecord(topic_id=ORDERS), delta)
    for record in topic(topic_id=bytes(15) + b"\x08"):
        image.replay(record, delta)

    assert [topic.topic_id for topic in delta.deleted_topics] == [ORDERS]
    assert delta.created_topics["orders"].topic_id == bytes(15) + b"\x08"
    assert delta.changed_partitions == {}


def test_what_came_and_went_within_a_delta_leaves_nothing():
    image, delta = MetadataImage(), MetadataDelta()

    for record in (*topic(), RemoveTopicRecord(topic_id=ORDERS)):
        image.replay(record, delta)

    assert delta.is_empty


def test_a_copy_goes_its_own_way():
    image = image_of(*topic(), ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"))
    before = content(image)
    copied = image.copy()

    copied.replay(PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=1))
    copied.replay(RemoveTopicRecord(topic_id=ORDERS))

    assert content(image) == before
    assert content(copied) == []


@pytest.mark.parametrize(
    ("level", "expected"),
    [(14, (0, 2)), (17, (1, 3)), (21, (1, 3)), (25, (2, 3)), (30, (2, 4))],
)
def test_records_are_written_in_the_version_that_the_metadata_version_allows(level, expected):
    image = image_of(FeatureLevelRecord(name="metadata.version", feature_level=level))
    _, partition = topic()
    broker = RegisterBrokerRecord(broker_id=1, incarnation_id=ORDERS, broker_epoch=1, end_points=[], features=[])

    assert (image.version_of(partition), image.version_of(broker)) == expected


def test_a_registration_change_is_written_in_the_lowest_version_that_holds_it():
    image = image_of(FeatureLevelRecord(name="metadata.version", feature_level=30))

    def version(**fields):
        return image.version_of(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, **fields))

    assert version(fenced=1) == 0
    assert version(in_controlled_shutdown=1) == 1
    assert version(log_dirs=[DIRECTORY]) == 2
    assert version(cordoned_log_dirs=[]) == 3


names = st.sampled_from(["a", "a.b", "a_b", "c"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("create"), names, st.integers(1, 3)),
        st.tuples(st.just("remove"), names),
        st.tuples(st.just("lead"), names, st.integers(-1, 2)),
        st.tuples(st.just("config"), names, st.sampled_from(["1", "2", None])),
        st.tuples(st.just("feature"), names, st.integers(0, 2)),
        st.tuples(st.just("ids"), st.integers(0, 10)),
        st.tuples(st.just("unknown"), st.binary(max_size=3)),
    ),
    max_size=30,
)


@given(steps)
def test_the_records_of_an_image_add_up_to_it(history):
    image = MetadataImage()
    for number, step in enumerate(history):
        match step:
            case ("create", name, count) if name not in image.topics_by_name:
                for record in topic(name, number.to_bytes(16, "big"), count):
                    image.replay(record)
            case ("remove", name) if name in image.topics_by_name:
                image.replay(RemoveTopicRecord(topic_id=image.topics_by_name[name].topic_id))
            case ("lead", name, leader) if name in image.topics_by_name:
                topic_id = image.topics_by_name[name].topic_id
                image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=leader))
            case ("config", name, value):
                image.replay(ConfigRecord(resource_type=2, resource_name=name, name="flush.ms", value=value))
            case ("feature", name, level):
                image.replay(FeatureLevelRecord(name=name, feature_level=level))
            case ("ids", count):
                image.replay(ProducerIdsRecord(broker_id=1, next_producer_id=count))
            case ("unknown", raw):
                image.replay(UnknownRecord(key=99, version=0, raw=raw))

    again = image_of(*image.records())

    assert content(again) == content(image)
    assert content(image.copy()) == content(image)
    assert again.names_by_collision_key == image.names_by_collision_key
    assert image.copy().names_by_collision_key == image.names_by_collision_key
