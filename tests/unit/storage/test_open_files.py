"""However many logs there are, no more of their files are open than are allowed."""

from pathlib import Path

from config.log_config import LogConfig
from storage.loading import open_log
from storage.open_files import OpenFiles
from storage.topic_partition import TopicPartition
from tests.support.files import FaultyFileSystem
from tests.support.logs import SMALL, T, batch_of, values_in


def test_logs_that_take_turns_need_no_file_each(tmp_path: Path) -> None:
    files, open_files = FaultyFileSystem(), OpenFiles(4)
    logs = []
    for index in range(20):
        directory = str(tmp_path / f"orders-{index}")
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
