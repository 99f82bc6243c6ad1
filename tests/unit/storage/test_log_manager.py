"""All logs of a broker through start, stop, creation and deletion."""

import errno
from pathlib import Path

import pytest

from config.log_config import LogConfig
from storage.errors import DirectoryLocked, DiskFull, LogDirFailed, WrongDirectory
from storage.log import Log
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import MISNAMED, TopicPartition, parse_dir_name
from tests.support.files import FaultyFileSystem
from tests.support.logs import SMALL, T, batch_of, close_all, load_all, values_in

CONFIG = LogConfig(**SMALL)
ORDERS = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)
SALES = TopicPartition("sales.eu-1", 0)
IDS = {"orders": b"o" * 16, "sales.eu-1": b"s" * 16}


class Broker:
    """As much of a broker as a log manager sees."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths
        self.files = FaultyFileSystem()
        self.ids = dict(IDS)

    def start(self) -> LogManager:
        self.manager = LogManager(self.files, [LogDir.lock(self.files, str(path)) for path in self.paths])
        numbers = iter(range(1000))
        load_all(
            self.manager,
            config_of=lambda topic: CONFIG,
            is_ours=lambda tp, topic_id: self.ids.get(tp.topic) == topic_id,
            new_id=lambda: f"{next(numbers):032x}",
        )
        return self.manager

    def stop(self) -> None:
        close_all(self.manager)
        self.manager.leave(broker_epoch=7)

    def crash(self) -> None:
        for log in self.manager.all():
            log.abandon()
        for directory in self.manager.directories:
            directory._lock.release()

    def forget_deleted(self) -> None:
        for forgetting in self.manager.forget_deleted():
            forgetting.perform()
            self.manager.have_forgotten(forgetting)

    def create(self, topic_partition: TopicPartition) -> Log:
        return self.manager.create(topic_partition, self.ids[topic_partition.topic], CONFIG, T)


def append(log: Log, *values: bytes) -> None:
    for value in values:
        log.stage(batch_of(value), leader_epoch=0)
    log.append_all(T)
    log.advance_high_watermark(log.log_end_offset)


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
    next(manager.find(config_of=lambda t: CONFIG, is_ours=lambda tp, i: True, new_id=lambda: ""))
    close_all(manager)
    manager.leave()
    log = broker.start().get(ORDERS)
    assert log is not None
    assert log.log_start_offset == 1


def test_a_second_broker_is_refused(broker: Broker) -> None:
    broker.start()
    with pytest.raises(DirectoryLocked):
        LogDir.lock(broker.files, str(broker.paths[0]))


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


def test_a_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b")
    for path in broker.paths:
        single = Broker(path)
        single.start()
        single.create(ORDERS)
        single.stop()
    with pytest.raises(WrongDirectory, match=r"orders-0 stands in .*/a and in .*/b"):
        broker.start()


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


def test_a_deletion_cut_off_by_a_crash_is_taken_up_again(broker: Broker) -> None:
    manager = broker.start()
    broker.create(ORDERS)
    manager.delete(ORDERS, "ab" * 16)
    broker.crash()
    ((removal, _),) = broker.start().take_pending_removals()
    assert removal.delay_ms == 60_000
    removal.perform()
    assert not list(broker.paths[0].glob("orders*"))


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


@pytest.mark.parametrize("topic", ["orders", "a-b.c_d", "x" * 249])
def test_directory_names_come_back(topic: str) -> None:
    partition = TopicPartition(topic, 12)
    assert parse_dir_name(partition.dir_name) == (partition, "")
    name = partition.suffixed_dir_name("0123456789abcdef" * 2, "delete")
    assert len(name) <= 255
    assert parse_dir_name(name).fate == "delete"
    assert parse_dir_name(name).topic_partition.topic == topic[: 255 - len("-12.-delete") - 32]


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("a-00", 0),
        ("a-+1", 1),
        ("a-0000000000000000007", 7),
        ("a-\N{ARABIC-INDIC DIGIT ONE}", 1),
        ("a-\N{FULLWIDTH DIGIT ONE}0", 10),
    ],
)
def test_another_spelling_of_a_number_is_told_from_the_partitions_own(name: str, partition: int) -> None:
    assert parse_dir_name(name) == (TopicPartition("a", partition), MISNAMED)


def test_a_dash_before_a_number_belongs_to_the_topic() -> None:
    assert parse_dir_name("a--1") == (TopicPartition("a-", 1), "")


@pytest.mark.parametrize(
    "name",
    ["orders", "orders-", "-1", "orders-x", "orders-1-delete", "orders-1 ", "orders- 1", "orders-1_0", "orders-++1",
     "orders-2147483648", f"orders-{'9' * 240}", "orders-\N{SUPERSCRIPT TWO}", "orders-x.1-delete", "a.-delete",
     "orders-1.-delete"],
)  # fmt: skip
def test_other_directory_names_are_refused(name: str) -> None:
    with pytest.raises(WrongDirectory):
        parse_dir_name(name)


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
