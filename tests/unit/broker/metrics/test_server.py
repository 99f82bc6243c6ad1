"""Metrics of the process, the node, and of loading the logs."""

import errno
import mmap
import platform
import threading
from pathlib import Path

import pytest

from broker.logs.loading import LoadingStats
from broker.metrics.subjects import FAMILIES
from tests.support.broker import InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem
from tests.support.metrics import now, scrape, shown, up


def test_the_state_is_kafkas_number(broker: InProcessBroker) -> None:
    assert scrape(broker)["kafka_server_kafkaserver_brokerstate"] == 3


def test_the_process_is_told_of(broker: InProcessBroker) -> None:
    page = scrape(broker)
    assert page["process_resident_memory_bytes"] > 1 << 20
    assert page["process_cpu_seconds_total"] > 0
    assert page["process_open_fds"] > 3
    assert page["process_max_fds"] >= page["process_open_fds"]
    assert page["process_start_time_seconds"] > 1e9
    assert [labels["version"] for labels in page.labelled("python_info")] == [platform.python_version()]


def test_boards_made_for_java_find_memory_and_threads(broker: InProcessBroker) -> None:
    page = scrape(broker)
    used, most = 'jvm_memory_used_bytes{area="heap"}', 'jvm_memory_max_bytes{area="heap"}'
    assert 1 << 20 < page[used] < page[most]
    assert page['jvm_memory_bytes_used{area="heap"}'] == page[used]
    assert page['jvm_memory_bytes_max{area="heap"}'] == page[most]
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    with shown(broker, {"jvm_threads_current": up(1)}):
        thread.start()
    is_over.set()
    thread.join()


def test_memory_that_is_taken_shows(broker: InProcessBroker) -> None:
    with shown(broker, {'jvm_memory_used_bytes{area="heap"}': up(), 'jvm_memory_bytes_used{area="heap"}': up()}):
        # From the system itself: what tests before this one have freed may be enough for a bytearray.
        held = mmap.mmap(-1, 64 << 20)
        for position in range(0, len(held), mmap.PAGESIZE):
            held[position] = 1
    held.close()


def test_what_is_written_to_disks_is_told(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    page = scrape(broker)
    assert page["kafka_server_kafkaserver_linux_disk_read_bytes"] >= 0
    assert page["kafka_server_kafkaserver_linux_disk_write_bytes"] >= 0
    assert page["kafka_server_kafkaserver_linux_disk_cancelled_write_bytes"] >= 0


def test_reads_and_writes_by_system_calls_are_told(broker: InProcessBroker, tmp_path: Path) -> None:
    disk = "kafka_server_kafkaserver_linux_disk"
    with shown(broker, {f"{disk}_{name}": up() for name in ("rchar", "wchar", "syscr", "syscw")}):
        (tmp_path / "file").write_bytes(bytes(100_000))
        assert len((tmp_path / "file").read_bytes()) == 100_000


def test_the_time_of_the_start_and_the_number_of_families_are_told(broker: InProcessBroker) -> None:
    started_ms = broker.clock.now_ms()
    broker.advance(5_000)
    page = scrape(broker)
    assert page["kafka_server_app_info_start_time_ms"] == started_ms
    assert page["kafka_server_kafkaserver_yammer_metrics_count"] == len(FAMILIES)


def test_brokers_are_told_of_as_kafka_exporter_does_it(broker: InProcessBroker) -> None:
    page = scrape(broker)
    port = broker.server.socket_server.acceptors[0].port
    assert page["kafka_brokers"] == 1
    assert page[f'kafka_broker_info{{id="1",address="127.0.0.1:{port}"}}'] == 1


def test_logs_that_were_opened_are_counted_and_none_are_left(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        assert scrape(broker)[f'kafka_log_logmanager_logsloaded_total{{dir="{tmp_path}"}}'] == 0
        broker.create_topic("orders", partitions=4)
        broker.restart()
        page = scrape(broker)
    assert page[f'kafka_log_logmanager_logsloaded_total{{dir="{tmp_path}"}}'] == 4
    assert page[f'kafka_log_logmanager_remaininglogstorecover{{dir="{tmp_path}"}}'] == 0
    assert page[f'ottla_log_recovery_remaining_bytes{{dir="{tmp_path}"}}'] == 0


def test_logs_that_are_still_to_be_opened_are_told_of(broker: InProcessBroker) -> None:
    loading = broker.server.metric_sources.loading
    assert loading is not None
    (directory,) = loading.stats
    loading.stats[directory] = LoadingStats(logs_total=10, logs_loaded=4, bytes_to_check=5_000, bytes_checked=2_000)
    page = scrape(broker)
    assert page[f'kafka_log_logmanager_logsloaded_total{{dir="{directory}"}}'] == 4
    assert page[f'kafka_log_logmanager_remaininglogstorecover{{dir="{directory}"}}'] == 6
    assert page[f'ottla_log_recovery_remaining_bytes{{dir="{directory}"}}'] == 3_000


def test_data_directories_are_told_of(broker: InProcessBroker) -> None:
    directory = str(broker.directory)
    page = scrape(broker)
    assert page["kafka_log_logmanager_offlinelogdirectorycount"] == 0
    assert page[f'kafka_log_logmanager_logdirectoryoffline{{logDirectory="{directory}"}}'] == 0
    assert page["kafka_log_logmanager_cordonedlogdirectorycount"] == 0
    assert page[f'kafka_log_logmanager_logdirectorycordoned{{logDirectory="{directory}"}}'] == 0
    free = page[f'ottla_log_directory_free_bytes{{logDirectory="{directory}"}}']
    assert 0 < free < page[f'ottla_log_directory_total_bytes{{logDirectory="{directory}"}}']


def test_cordoned_directories_are_told_of(tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    with running_broker(tmp_path / "one", log_dirs=f"{one},{two}", cordoned_log_dirs=two) as broker:
        page = scrape(broker)
    assert page["kafka_log_logmanager_cordonedlogdirectorycount"] == 1
    assert page[f'kafka_log_logmanager_logdirectorycordoned{{logDirectory="{one}"}}'] == 0
    assert page[f'kafka_log_logmanager_logdirectorycordoned{{logDirectory="{two}"}}'] == 1


def test_a_disk_that_cannot_be_asked_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = FaultyFileSystem()
    with running_broker(tmp_path, files=files) as broker:
        (directory,) = broker.server.metric_sources.logs.directories  # type: ignore[union-attr]

        def refused() -> None:
            from storage.files import storage_error

            raise storage_error(OSError(errno.EIO, "it is gone"), "asking", directory.path)

        monkeypatch.setattr(type(directory), "space", lambda self: refused())
        page = scrape(broker)
    assert page.get(f'ottla_log_directory_free_bytes{{logDirectory="{directory.path}"}}') is None


def test_flushes_are_counted_and_timed(broker: InProcessBroker) -> None:
    broker.create_topic("orders", flush_messages=1)
    with shown(broker, {"kafka_log_logflushstats_logflushrateandtimems_count": up(1)}):
        broker.produce("orders", b"one")
    assert scrape(broker)['kafka_log_logflushstats_logflushrateandtimems{quantile="0.50"}'] > 0
    broker.advance(120_000)
    page = scrape(broker)
    assert page['kafka_log_logflushstats_logflushrateandtimems{quantile="0.50"}'] == 0
    assert now(0).holds(1, page['kafka_log_logflushstats_logflushrateandtimems{quantile="0.999"}'])
