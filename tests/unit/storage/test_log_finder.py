"""The directories among the logs at a start: logs to open, stray logs, half deleted logs, and others."""

from pathlib import Path

import pytest

from storage.errors import WrongDirectory
from tests.support.log_managers import ORDERS, SALES, Broker, append


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "data")


def test_a_partition_of_another_topic_id_is_set_aside(broker: Broker) -> None:
    broker.start()
    append(broker.create(ORDERS), b"a")
    broker.create(SALES)
    broker.stop()
    broker.ids["orders"] = b"x" * 16
    manager = broker.start()
    assert [log.topic_partition for log in manager.all()] == [SALES]
    assert (broker.paths[0] / f"orders-0.{0:032x}-stray").is_dir()
    assert broker.create(ORDERS).log_end_offset == 0


def test_foreign_directories_are_refused_by_name(broker: Broker) -> None:
    (broker.paths[0] / "holiday pictures").mkdir(parents=True)
    with pytest.raises(WrongDirectory, match="holiday pictures"):
        broker.start()


def test_the_metadata_log_is_left_alone(broker: Broker) -> None:
    (broker.paths[0] / "__cluster_metadata-0").mkdir(parents=True)
    assert broker.start().all() == []


def test_a_deletion_cut_off_by_a_crash_is_taken_up_again(broker: Broker) -> None:
    manager = broker.start()
    broker.create(ORDERS)
    manager.delete(ORDERS, "ab" * 16)
    broker.crash()
    ((removal, _),) = broker.start().take_pending_removals()
    assert removal.delay_ms == 60_000
    removal.perform()
    assert not list(broker.paths[0].glob("orders*"))
