"""All logs of a broker through start, stop, creation and deletion."""

import errno
from pathlib import Path

import pytest

from storage.errors import DirectoryLocked, DiskFull, LogDirFailed, WrongDirectory
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition
from tests.support.log_managers import CONFIG, ORDERS, ORDERS_1, SALES, Broker, append
from tests.support.logs import T, close_all, values_in


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "data")


def test_logs_are_there_again_after_a_clean_stop(broker: Broker) -> None:
    broker.start()
    append(broker.create(ORDERS), b"a", b"b")
    append(broker.create(SALES), b"c")
    broker.stop()
    data = broker.paths[0]
    assert (data / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":7}'
    assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n2\norders 0 2\nsales.eu-1 0 1\n"
    assert (data / "replication-offset-checkpoint").read_text() == "0\n2\norders 0 2\nsales.eu-1 0 1\n"
    assert not (data / ".lock").exists()

    manager = broker.start()
    assert manager.directories[0].was_clean
    assert not (data / ".kafka_cleanshutdown").exists()
    log = manager.get(ORDERS)
    assert log is not None
    assert values_in(log) == [b"a", b"b"]
    assert (log.topic_id, log.high_watermark) == (b"o" * 16, 2)
    assert manager.repaired == []


def test_logs_are_recovered_after_a_crash(broker: Broker) -> None:
    broker.start()
    append(broker.create(ORDERS), b"a", b"b")
    path = Path(broker.create(ORDERS).segments.active.log_path)
    broker.crash()
    path.write_bytes(path.read_bytes()[:-1])

    manager = broker.start()
    assert not manager.directories[0].was_clean
    log = manager.get(ORDERS)
    assert log is not None
    assert values_in(log) == [b"a"]
    (repaired,) = manager.repaired
    assert repaired.topic_partition == ORDERS
    assert repaired.report.bytes_cut > 0


def test_a_crash_while_loading_is_unclean(broker: Broker) -> None:
    broker.start()
    append(broker.create(ORDERS), b"a")
    broker.stop()
    broker.start()
    broker.crash()
    assert not broker.start().directories[0].was_clean


def test_a_stop_before_all_logs_are_loaded_keeps_what_was_known(broker: Broker) -> None:
    broker.start()
    append(broker.create(ORDERS), b"a", b"b")
    broker.create(ORDERS).start_offset_to(1)
    broker.stop()
    manager = LogManager(broker.files, [LogDir.lock(broker.files, str(broker.paths[0]))])
    next(manager.find(config_of=lambda t: CONFIG, is_ours=lambda *_: True, assigned=lambda _: None, new_id=lambda: ""))
    close_all(manager)
    manager.leave()
    log = broker.start().get(ORDERS)
    assert log is not None
    assert log.log_start_offset == 1


def test_a_second_broker_is_refused(broker: Broker) -> None:
    broker.start()
    with pytest.raises(DirectoryLocked):
        LogDir.lock(broker.files, str(broker.paths[0]))


def test_a_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b")
    for path in broker.paths:
        single = Broker(path)
        single.start()
        single.create(ORDERS)
        single.stop()
    with pytest.raises(WrongDirectory, match=r"orders-0 stands in .*/a and in .*/b"):
        broker.start()


@pytest.mark.parametrize("assigned", ["a", "b"])
def test_of_a_partition_in_two_directories_the_log_counts_that_the_metadata_has(tmp_path: Path, assigned: str) -> None:
    """A directory that had failed is back, and the replica has been made anew in the other one meanwhile."""
    broker = Broker(tmp_path / "a", tmp_path / "b")
    for path in broker.paths:
        single = Broker(path)
        single.start()
        append(single.create(ORDERS), path.name.encode())
        single.stop()
    broker.assigned[ORDERS] = tmp_path / assigned
    log = broker.start().get(ORDERS)
    assert log is not None
    assert values_in(log) == [assigned.encode()]
    (other,) = {"a", "b"} - {assigned}
    assert [path.name for path in (tmp_path / other).glob("orders-0*")] == [f"orders-0.{0:032x}-stray"]
    assert broker.manager.findings == [
        f"{tmp_path / other}/orders-0 is a second log of orders-0, which the metadata has in {tmp_path / assigned}: "
        f"set aside as orders-0.{0:032x}-stray"
    ]


def test_a_log_that_is_not_where_the_metadata_has_it_counts_all_the_same(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b")
    single = Broker(tmp_path / "a")
    single.start()
    append(single.create(ORDERS), b"moved")
    single.stop()
    broker.assigned[ORDERS] = tmp_path / "b"
    log = broker.start().get(ORDERS)
    assert log is not None
    assert values_in(log) == [b"moved"]


@pytest.mark.parametrize(
    ("operation", "suffix"), [("write", "partition.metadata.tmp"), ("make", ".log"), ("make", ".timeindex")]
)
def test_a_log_that_cannot_be_made_leaves_nothing_in_its_directory(tmp_path: Path, operation: str, suffix: str) -> None:
    """The next attempt may be in another directory."""
    broker = Broker(tmp_path / "a", tmp_path / "b")
    broker.start()
    broker.files.fail(operation, errno.ENOSPC, suffix=suffix)
    with pytest.raises(DiskFull):
        broker.create(ORDERS)
    assert list(tmp_path.glob("*/orders-0")) == []
    append(broker.create(ORDERS), b"a")


def test_new_logs_go_where_fewest_are(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b")
    broker.start()
    for number in range(4):
        broker.create(TopicPartition("orders", number))
    assert len(list((tmp_path / "a").glob("orders-*"))) == 2
    assert len(list((tmp_path / "b").glob("orders-*"))) == 2


# Deleting -------------------------------------------------------------------------------------------------------------


def test_a_deleted_log_is_renamed_at_once_and_removed_later(broker: Broker) -> None:
    manager = broker.start()
    log = broker.create(ORDERS)
    append(log, b"a")
    region = log.read(0, max_bytes=1000, upper_bound_offset=1, at_least_one_batch=True).region
    removal = manager.delete(ORDERS, "ab" * 16)
    assert removal is not None
    renamed = broker.paths[0] / f"orders-0.{'ab' * 16}-delete"
    assert renamed.is_dir()
    assert manager.get(ORDERS) is None
    assert manager.delete(ORDERS, "ab" * 16) is None
    broker.forget_deleted()
    append(broker.create(ORDERS), b"new")

    removal.perform()
    assert not renamed.exists()
    assert region is not None
    assert len(region.read()) == region.size


# Checkpoints ----------------------------------------------------------------------------------------------------------


def test_checkpoints_are_written_only_when_they_change(broker: Broker) -> None:
    manager = broker.start()
    log = broker.create(ORDERS)
    append(log, b"a", b"b")
    (write,) = manager.high_watermark_checkpoints()
    write.perform()
    assert (broker.paths[0] / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
    assert manager.high_watermark_checkpoints() == []
    append(log, b"c")
    (write,) = manager.high_watermark_checkpoints()
    assert (broker.paths[0] / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"


def test_a_checkpoint_that_found_no_room_is_written_next_time(broker: Broker) -> None:
    manager = broker.start()
    append(broker.create(ORDERS), b"a")
    broker.files.fail("write", errno.ENOSPC, suffix="checkpoint.tmp")
    (write,) = manager.high_watermark_checkpoints()
    with pytest.raises(Exception, match="No space"):
        write.perform()
    (write,) = manager.high_watermark_checkpoints()
    write.perform()
    assert manager.high_watermark_checkpoints() == []


def test_a_log_start_is_checkpointed_only_inside_the_first_segment(broker: Broker) -> None:
    manager = broker.start()
    log = broker.create(ORDERS)
    append(log, b"a", b"b", b"c")
    log.start_offset_to(2)
    (write,) = manager.log_start_checkpoints()
    write.perform()
    assert (broker.paths[0] / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"


def test_a_log_start_is_saved_once_the_checkpoint_on_disk_has_it(broker: Broker) -> None:
    manager = broker.start()
    log = broker.create(ORDERS)
    directory = manager.directory_of(ORDERS)
    assert directory is not None
    append(log, b"a", b"b", b"c")
    saved = []
    for move in (lambda: log.start_offset_to(2), lambda: log.truncate_fully_to(1, T)):
        saved.append(log.is_start_saved(directory.saved_log_start(ORDERS)))
        move()
        saved.append(log.is_start_saved(directory.saved_log_start(ORDERS)))
        for write in manager.log_start_checkpoints():
            write.perform()
    saved.append(log.is_start_saved(directory.saved_log_start(ORDERS)))
    assert saved == [True, False, True, False, True]


# Failures -------------------------------------------------------------------------------------------------------------


def test_a_directory_that_cannot_be_read_goes_offline_and_the_others_serve(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b")
    broker.start()
    broker.create(ORDERS)
    broker.create(ORDERS_1)
    append(broker.create(ORDERS), b"a")
    broker.stop()
    broken = next(path for path in broker.paths if (path / "orders-0").exists())
    broker.files.fail("read", suffix=f"{0:020d}.log")
    manager = broker.start()
    assert [str(d.path) for d in manager.directories if d.has_failed] == [str(broken)]
    assert isinstance(manager.failures[0][1], LogDirFailed)
    assert [log.topic_partition for log in manager.all()] == [ORDERS_1]
    broker.stop()
    assert not (broken / ".kafka_cleanshutdown").exists()
    other = next(path for path in broker.paths if path != broken)
    assert (other / ".kafka_cleanshutdown").exists()


def test_without_a_directory_left_nothing_can_be_made(broker: Broker) -> None:
    manager = broker.start()
    broker.create(ORDERS)
    assert [log.topic_partition for log in manager.directory_failed(manager.directories[0])] == [ORDERS]
    with pytest.raises(LogDirFailed, match="no data directory is left"):
        broker.create(ORDERS)


def test_a_stop_that_cannot_flush_leaves_no_marker(broker: Broker) -> None:
    broker.start()
    append(broker.create(ORDERS), b"a")
    broker.files.fail("fsync", suffix=".log")
    broker.stop()
    assert not (broker.paths[0] / ".kafka_cleanshutdown").exists()
    log = broker.start().get(ORDERS)
    assert log is not None
    assert values_in(log) == [b"a"]


def test_a_stop_on_a_full_disk_closes_what_it_can_and_leaves_no_marker(broker: Broker) -> None:
    manager = broker.start()
    for partition in (ORDERS, ORDERS_1):
        append(broker.create(partition), b"a")
    broker.files.fail("write", errno.ENOSPC, suffix="orders-0/00000000000000000001.snapshot.tmp")
    broker.stop()

    assert not (broker.paths[0] / ".kafka_cleanshutdown").exists()
    assert [str(error) for _, error in manager.failures if "orders-0" in str(error)] != []
    recovered = (broker.paths[0] / "recovery-point-offset-checkpoint").read_text()
    assert recovered == "0\n2\norders 0 1\norders 1 1\n", "the records are on disk all the same"
    manager = broker.start()
    assert [values_in(log) for log in manager.all()] == [[b"a"], [b"a"]]


def test_the_other_directories_are_left_in_order(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b")
    broker.start()
    for partition in (ORDERS, ORDERS_1):
        append(broker.create(partition), b"a")
    full = next(path for path in broker.paths if (path / "orders-0").exists())
    broker.files.fail("write", errno.ENOSPC, suffix="orders-0/00000000000000000001.snapshot.tmp")
    broker.stop()
    assert [path for path in broker.paths if not (path / ".kafka_cleanshutdown").exists()] == [full]


def test_retention_that_fails_for_one_log_goes_on_with_the_others(broker: Broker) -> None:
    manager = broker.start()
    for partition in (ORDERS, ORDERS_1):
        log = broker.create(partition)
        append(log, b"a")
        log.config = CONFIG.replace(retention_ms=1)
    broker.files.fail("rename", suffix="orders-0/00000000000000000000.log")
    swept = {log.topic_partition: outcome for log, outcome in manager.apply_retention(T + 1000)}
    assert isinstance(swept[ORDERS], LogDirFailed)
    assert isinstance(swept[ORDERS_1], list)


def test_a_directory_that_has_failed_keeps_its_checkpoints_as_they_are(broker: Broker) -> None:
    manager = broker.start()
    append(broker.create(ORDERS), b"a")
    (write,) = manager.high_watermark_checkpoints()
    manager.directory_failed(manager.directories[0])
    write.perform()
    assert manager.high_watermark_checkpoints() == []
    assert not (broker.paths[0] / "replication-offset-checkpoint").exists()


def test_a_checkpoint_that_finds_no_room_leaves_the_one_before(broker: Broker) -> None:
    manager = broker.start()
    log = broker.create(ORDERS)
    append(log, b"a")
    for write in manager.high_watermark_checkpoints():
        write.perform()
    append(log, b"b")
    broker.files.fail("write", errno.ENOSPC, suffix="checkpoint.tmp", bytes_done=5)
    (write,) = manager.high_watermark_checkpoints()
    with pytest.raises(DiskFull):
        write.perform()
    assert (broker.paths[0] / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 1\n"
    assert not list(broker.paths[0].glob("*.tmp")), "what there was of it would only take more room"


def test_retention_sweeps_every_log(broker: Broker) -> None:
    manager = broker.start()
    for partition in (ORDERS, ORDERS_1):
        log = broker.create(partition)
        append(log, b"a")
        log.config = CONFIG.replace(retention_ms=1)
    swept = list(manager.apply_retention(T + 1000))
    assert [len(step) for _, step in swept if isinstance(step, list)] == [1, 1]
