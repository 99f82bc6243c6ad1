"""Deleted partitions are forgotten by the checkpoints before a new log has their name."""

from pathlib import Path

import pytest

from tests.support.log_managers import ORDERS, Broker, append
from tests.support.logs import T, values_in


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "data")


def test_a_new_log_does_not_inherit_the_offsets_of_its_deleted_namesake(broker: Broker) -> None:
    manager = broker.start()
    log = broker.create(ORDERS)
    append(log, *[b"old"] * 50)
    log.start_offset_to(40)
    log.flush(T)
    for write in (*manager.log_start_checkpoints(), *manager.recovery_point_checkpoints()):
        write.perform()
    manager.delete(ORDERS, "ab" * 16)
    assert not manager.may_be_made(ORDERS)
    broker.forget_deleted()
    assert manager.may_be_made(ORDERS)
    append(broker.create(ORDERS), b"a", b"b")
    broker.crash()
    found = broker.start().get(ORDERS)
    assert found is not None
    assert (found.log_start_offset, values_in(found)) == (0, [b"a", b"b"])


def test_a_checkpoint_that_was_on_its_way_brings_no_deleted_namesake_back(broker: Broker) -> None:
    manager = broker.start()
    log = broker.create(ORDERS)
    append(log, *[b"old"] * 50)
    log.start_offset_to(40)
    on_its_way = [*manager.log_start_checkpoints(), *manager.high_watermark_checkpoints()]
    manager.delete(ORDERS, "ab" * 16)
    for write in on_its_way:
        write.perform()
    broker.forget_deleted()
    append(broker.create(ORDERS), b"a", b"b")
    broker.crash()
    found = broker.start().get(ORDERS)
    assert found is not None
    assert (found.log_start_offset, values_in(found)) == (0, [b"a", b"b"])


def test_loading_forgets_what_was_deleted_just_before_a_crash(broker: Broker) -> None:
    manager = broker.start()
    append(broker.create(ORDERS), b"a")
    for write in manager.high_watermark_checkpoints():
        write.perform()
    manager.delete(ORDERS, "ab" * 16)
    broker.crash()
    assert broker.start().may_be_made(ORDERS)
    assert (broker.paths[0] / "replication-offset-checkpoint").read_text() == "0\n0\n"


def test_on_a_full_disk_loading_leaves_for_later_what_is_to_be_forgotten(broker: Broker) -> None:
    manager = broker.start()
    append(broker.create(ORDERS), b"a")
    for write in manager.high_watermark_checkpoints():
        write.perform()
    manager.delete(ORDERS, "ab" * 16)
    broker.crash()
    broker.files.fill_up()
    manager = broker.start()
    assert not manager.may_be_made(ORDERS)
    assert not manager.may_be_made(ORDERS)
    broker.files.make_room()
    broker.forget_deleted()
    assert manager.may_be_made(ORDERS)
    assert (broker.paths[0] / "replication-offset-checkpoint").read_text() == "0\n0\n"
