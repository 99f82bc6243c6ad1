"""MetadataImage: what each kind of record changes, and that its own records add up to the same image."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metadata.image.metadata_image import EMPTY, MetadataDelta
from broker.metadata.image.records import InconsistentMetadata
from broker.metadata.record_versions import version_of
from protocol.records.cluster_metadata import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnknownRecord,
    UnregisterControllerRecord,
)
from storage.topic_partition import TopicPartition
from tests.support.cost import calls
from tests.support.metadata import image_of, replayed

ORDERS = bytes(15) + b"\x07"
DIRECTORY = bytes(15) + b"\x09"


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


def test_a_topic_knows_that_another_one_had_its_name():
    first = image_of(*topic())
    assert not first.topics.by_name["orders"].is_renewed
    again = [RemoveTopicRecord(topic_id=ORDERS), *topic(topic_id=bytes(15) + b"\x08")]
    assert replayed(first, *again).topics.by_name["orders"].is_renewed
    gone = replayed(first, again[0])
    later = replayed(replayed(gone, *topic("letters", bytes(15) + b"\x01")), *again[1:])
    assert later.topics.by_name["orders"].is_renewed
    assert not later.topics.by_name["letters"].is_renewed
    assert (
        replayed(later, PartitionChangeRecord(partition_id=0, topic_id=again[1].topic_id, leader=-1))
        .topics.by_name["orders"]
        .is_renewed
    )


def test_a_topic_is_found_by_name_and_by_id():
    image = image_of(*topic(partitions=2))

    assert image.topics.by_name["orders"] is image.topics.by_id[ORDERS]
    assert [partition.index for partition in image.topics.by_id[ORDERS].partitions] == [0, 1]
    assert image.topics.by_id[ORDERS].partition(1).directory_of(1) == DIRECTORY
    assert image.topics.by_id[ORDERS].partition(2) is None
    assert image.topics.by_id[ORDERS].partition(-1) is None


def test_partitions_may_come_in_any_order():
    name, first, second, third = topic(partitions=3)

    image = image_of(name, third, first, second)

    assert [partition.index for partition in image.topics.by_name["orders"].partitions] == [0, 1, 2]


def test_naming_a_leader_begins_a_leader_epoch_and_every_change_a_partition_epoch():
    image = image_of(*topic())

    image = replayed(image, PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=1))
    image = replayed(image, PartitionChangeRecord(partition_id=0, topic_id=ORDERS, isr=[]))

    partition = image.topics.by_id[ORDERS].partition(0)
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 2)
    assert partition.isr == ()
    assert partition.replicas == (1,)


def test_a_change_sets_exactly_the_fields_that_it_carries():
    image = image_of(*topic())

    image = replayed(
        image,
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
        ),
    )

    partition = image.topics.by_id[ORDERS].partition(0)
    assert (partition.isr, partition.leader, partition.replicas) == ((2,), 2, (2, 3))
    assert (partition.removing_replicas, partition.adding_replicas) == ((1,), (3,))
    assert partition.leader_recovery_state == 1
    assert partition.directories == (DIRECTORY, bytes(16))
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((4,), (5,))


def test_clearing_eligible_leaders_touches_only_partitions_that_have_some():
    image = image_of(*topic(partitions=2))
    image = replayed(image, PartitionChangeRecord(partition_id=1, topic_id=ORDERS, eligible_leader_replicas=[1]))

    image = replayed(image, ClearElrRecord(topic_name="orders"))

    first, second = image.topics.by_id[ORDERS].partitions
    assert (first.partition_epoch, second.partition_epoch) == (0, 2)
    assert second.eligible_leader_replicas == ()


def test_removing_a_topic_removes_its_configs_and_what_it_collides_with():
    image = image_of(*topic("my.orders"))
    image = replayed(image, ConfigRecord(resource_type=2, resource_name="my.orders", name="retention.ms", value="5"))
    assert image.topics.names_by_collision_key == {"my_orders": frozenset({"my.orders"})}

    image = replayed(image, RemoveTopicRecord(topic_id=ORDERS))

    assert content(image) == []
    assert image.topics.names_by_collision_key == {}
    assert image.configs.of_topic("my.orders") == {}


def test_a_config_without_a_value_is_deleted():
    image = image_of(
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"),
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value=None),
    )

    assert image.configs.by_resource == {}


def test_a_feature_at_level_0_is_not_finalised():
    image = image_of(
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="group.version", feature_level=0),
    )

    assert image.features.levels == {"metadata.version": 25}


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

    assert image.cluster.brokers[1].fenced is False
    assert image.cluster.brokers[1].cordoned_log_dirs == [DIRECTORY]
    assert image.cluster.brokers[1].log_dirs == [DIRECTORY]
    assert registered.fenced is True


def test_a_controller_that_was_unregistered_is_in_no_snapshot():
    def registered(controller_id):
        return RegisterControllerRecord(
            controller_id=controller_id, incarnation_id=ORDERS, zk_migration_ready=False, end_points=[], features=[]
        )

    image = image_of(registered(1), registered(2), UnregisterControllerRecord(controller_id=2))

    assert content(image) == [registered(1)]


@pytest.mark.parametrize(
    "record",
    [
        PartitionChangeRecord(partition_id=0, topic_id=bytes(16), leader=1),
        PartitionChangeRecord(partition_id=7, topic_id=ORDERS, leader=1),
        RemoveTopicRecord(topic_id=bytes(16)),
        TopicRecord(name="orders", topic_id=bytes(16)),
        BrokerRegistrationChangeRecord(broker_id=5, broker_epoch=1, fenced=1),
        ClearElrRecord(topic_name="nope"),
        UnregisterControllerRecord(controller_id=5),
    ],
)
def test_a_record_that_does_not_fit_is_refused(record):
    image = image_of(*topic())

    with pytest.raises(InconsistentMetadata):
        replayed(image, record)


def delta_of(image, *records):
    """A delta that has been applied, and the image that it made."""
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta, delta.apply(image.end_offset + len(records))


def test_a_delta_names_what_changed():
    image = image_of(*topic("old"))

    delta, _ = delta_of(
        image,
        *topic("new", bytes(15) + b"\x08", partitions=2),
        PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=1),
        ConfigRecord(resource_type=2, resource_name="old", name="retention.ms", value="5"),
    )

    assert list(delta.topics.created) == ["new"]
    assert [partition.index for partition in delta.topics.created["new"].partitions] == [0, 1]
    assert {where: change.leader_epoch for where, change in delta.topics.changed_partitions.items()} == {
        TopicPartition("old", 0): 1
    }
    assert delta.configs.changed == {(2, "old")}
    assert delta.topics.deleted == {}


def test_a_change_costs_the_same_in_a_topic_of_ten_thousand_partitions():
    def cost(partitions):
        image = image_of(*topic(partitions=partitions))
        change = PartitionChangeRecord(partition_id=7, topic_id=ORDERS, isr=[1])
        return calls(lambda: delta_of(image, change))

    assert cost(10_000) == cost(100)


def test_a_name_can_be_deleted_and_created_in_one_delta():
    image = image_of(*topic())

    delta, after = delta_of(image, RemoveTopicRecord(topic_id=ORDERS), *topic(topic_id=bytes(15) + b"\x08"))

    assert list(delta.topics.deleted) == [ORDERS]
    assert delta.topics.created["orders"].topic_id == bytes(15) + b"\x08"
    assert delta.topics.changed_partitions == {}
    assert list(after.topics.by_id) == [bytes(15) + b"\x08"]


def test_what_came_and_went_within_a_delta_leaves_nothing():
    delta, after = delta_of(EMPTY, *topic(), RemoveTopicRecord(topic_id=ORDERS))

    assert delta.is_empty
    assert content(after) == []


def test_a_partition_that_was_changed_before_its_topic_was_removed_is_no_change():
    image = image_of(*topic())

    delta, _ = delta_of(
        image, PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=1), RemoveTopicRecord(topic_id=ORDERS)
    )

    assert delta.topics.changed_partitions == {}
    assert list(delta.topics.deleted) == [ORDERS]


def test_an_image_stays_as_it_was_when_the_next_one_is_made():
    config = ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5")
    image = image_of(*topic(), config)
    before = content(image)

    after = replayed(
        image, PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=1), RemoveTopicRecord(topic_id=ORDERS)
    )

    assert content(image) == before
    assert content(after) == []


def test_subjects_that_no_record_touched_are_shared_with_the_image_before():
    image = image_of(*topic(), FeatureLevelRecord(name="metadata.version", feature_level=25))

    after = replayed(image, ProducerIdsRecord(broker_id=1, next_producer_id=1000))

    assert after.producer_ids.next_producer_id == 1000
    assert image.producer_ids.next_producer_id == 0
    assert (after.topics, after.features, after.cluster) == (image.topics, image.features, image.cluster)


def test_a_snapshot_says_what_has_gone_what_is_new_and_what_has_changed():
    bills, notes = bytes(15) + b"\x08", bytes(15) + b"\x0a"
    config = ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5")
    image = image_of(*topic(partitions=2), *topic("bills", bills), config)
    later = replayed(
        image_of(*topic(partitions=2), *topic("notes", notes)),
        PartitionChangeRecord(partition_id=1, topic_id=ORDERS, leader=1),
    )

    delta = MetadataDelta.of_snapshot(image, later.records())
    after = delta.apply(100)

    assert list(delta.topics.deleted) == [bills]
    assert list(delta.topics.created) == ["notes"]
    assert list(delta.topics.changed_partitions) == [TopicPartition("orders", 1)]
    assert delta.configs.changed == {(2, "orders")}
    assert content(after) == content(later)
    assert after.end_offset == 100


@pytest.mark.parametrize(
    ("level", "expected"),
    [(14, (0, 2)), (17, (1, 3)), (21, (1, 3)), (25, (2, 3)), (30, (2, 4))],
)
def test_records_are_written_in_the_version_that_the_metadata_version_allows(level, expected):
    _, partition = topic()
    broker = RegisterBrokerRecord(broker_id=1, incarnation_id=ORDERS, broker_epoch=1, end_points=[], features=[])

    assert (version_of(partition, level), version_of(broker, level)) == expected


def test_a_registration_change_is_written_in_the_lowest_version_that_holds_it():
    def version(**fields):
        return version_of(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, **fields), 30)

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
    image = EMPTY
    for number, step in enumerate(history):
        match step:
            case ("create", name, count) if name not in image.topics.by_name:
                image = replayed(image, *topic(name, number.to_bytes(16, "big"), count))
            case ("remove", name) if name in image.topics.by_name:
                image = replayed(image, RemoveTopicRecord(topic_id=image.topics.by_name[name].topic_id))
            case ("lead", name, leader) if name in image.topics.by_name:
                topic_id = image.topics.by_name[name].topic_id
                image = replayed(image, PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=leader))
            case ("config", name, value):
                image = replayed(image, ConfigRecord(resource_type=2, resource_name=name, name="flush.ms", value=value))
            case ("feature", name, level):
                image = replayed(image, FeatureLevelRecord(name=name, feature_level=level))
            case ("ids", count):
                image = replayed(image, ProducerIdsRecord(broker_id=1, next_producer_id=count))
            case ("unknown", raw):
                image = replayed(image, UnknownRecord(key=99, version=0, raw=raw))

    again = image_of(*image.records())

    assert content(again) == content(image)
    assert again.topics.names_by_collision_key == image.topics.names_by_collision_key
    assert content(MetadataDelta.of_snapshot(image, again.records()).apply(0)) == content(image)
    assert MetadataDelta.of_snapshot(image, again.records()).is_empty


@pytest.mark.parametrize("name", ["", "..", "../../etc", "a/b", "a\0b", "x" * 250])
def test_a_topic_whose_name_would_be_no_directory_is_inconsistent(name):
    with pytest.raises(InconsistentMetadata, match="is no name of a topic: Topic name is invalid"):
        image_of(TopicRecord(name=name, topic_id=ORDERS))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"partition_id": -5}, "topic orders has no partition -5"),
        ({"directories": [DIRECTORY]}, "orders-0 has 2 replicas in 1 directories"),
    ],
)
def test_a_partition_that_cannot_be_is_inconsistent(change, problem):
    fields = {"partition_id": 0, "directories": [], **change}
    partition = PartitionRecord(
        topic_id=ORDERS, replicas=[1, 2], isr=[1], leader=1, leader_epoch=0, partition_epoch=0, **fields
    )
    with pytest.raises(InconsistentMetadata, match=problem):
        image_of(TopicRecord(name="orders", topic_id=ORDERS), partition)
