"""However many logs there are, no more of their files are open than are allowed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from config.log_config import LogConfig
from storage.errors import LogDirFailed
from storage.loading import open_log
from storage.log import Log
from storage.open_files import OpenFiles
from storage.topic_partition import TopicPartition
from tests.support.files import FaultyFileSystem
from tests.support.logs import SMALL, T, batch_of, values_in


def opened(path: Path, count: int, open_files: OpenFiles) -> list[Log]:
    """Empty logs of so many partitions."""
    files = FaultyFileSystem()
    logs = []
    for index in range(count):
        directory = str(path / f"orders-{index}")
        files.make_directory(directory)
        logs.append(
            open_log(
                files,
                directory,
                topic_partition=TopicPartition("orders", index),
                config=LogConfig(**SMALL),
                now_ms=T,
                open_files=open_files,
            )
        )
    return logs


def test_logs_that_take_turns_need_no_file_each(tmp_path: Path) -> None:
    open_files = OpenFiles(4)
    logs = opened(tmp_path, 20, open_files)
    for turn in range(3):
        for log in logs:
            log.stage(batch_of(b"%d" % turn), leader_epoch=0)
            log.append_all(T)
            assert len(open_files) <= 4
    for log in logs:
        log.advance_high_watermark(log.log_end_offset)
        assert values_in(log) == [b"0", b"1", b"2"]
        log.flush(T)
        assert log.recovery_point == 3
        log.close(T)
    assert len(open_files) == 0


def test_a_file_that_somebody_has_removed_meanwhile_means_that_the_directory_has_failed(tmp_path: Path) -> None:
    first, _ = opened(tmp_path, 2, OpenFiles(1))
    first.stage(batch_of(b"x"), leader_epoch=0)
    first.append_all(T)
    first.segments.active.files.let_go()
    (tmp_path / "orders-0" / f"{0:020}.log").unlink()
    with pytest.raises(LogDirFailed, match="another process has removed it"):
        list(first.batches())
    first.stage(batch_of(b"y"), leader_epoch=0)
    with pytest.raises(LogDirFailed, match="another process has removed it"):
        first.append_all(T)


def removed(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("lose", [removed, emptied])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_that_another_process_has_cut_is_made_anew(
    tmp_path: Path, lose: Callable[[Path], None], suffix: str
) -> None:
    directory = str(tmp_path / "orders-0")
    Path(directory).mkdir()
    config = LogConfig(**{**SMALL, "index_interval_bytes": 0})

    def open_it(recovery_point: int) -> Log:
        return open_log(
            FaultyFileSystem(), directory, topic_partition=TopicPartition("orders", 0), config=config, now_ms=T,
            recovery_point=recovery_point, was_clean=True,
        )  # fmt: skip

    log = open_it(0)
    for number in range(20):
        log.stage(batch_of(b"%d" % number, timestamp=T + number), leader_epoch=0)
        log.append_all(T)
    log.advance_high_watermark(20)
    log.close(T)
    log = open_it(20)
    log.advance_high_watermark(20)
    log.segments.active.offset_index.let_go()
    log.segments.active.time_index.let_go()
    (index,) = (tmp_path / "orders-0").glob(f"*.{suffix}")
    lose(index)

    assert values_in(log, 10)[:1] == [b"10"]
    place = log.offset_for_timestamp(T + 15, 20)
    assert place is not None
    assert place.offset == 15
    log.stage(batch_of(b"more", timestamp=T + 30), leader_epoch=0)
    log.append_all(T)
    log.advance_high_watermark(21)
    assert values_in(log, 20) == [b"more"]
