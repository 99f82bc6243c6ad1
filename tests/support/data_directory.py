"""A data directory without a running broker, for starts of a broker."""

from collections.abc import Iterator
from pathlib import Path

from config.log_config import LogConfig
from storage.files import FileSystem
from storage.loading import AFTER_UNCLEAN_STOP
from storage.log import Log
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition
from tests.support.logs import SMALL, T, batch_of, close_all, load_all

ORDERS = TopicPartition("orders", 0)
CONFIG = LogConfig(**SMALL)
TOPIC_ID = b"o" * 16


class DataDirectory:
    """A data directory with one partition of ten records, of which three were deleted; its broker has ended."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self.files = files
        self.log_path = path / ORDERS.dir_name

    def start(self, *, recovery: str = AFTER_UNCLEAN_STOP) -> LogManager:
        ids: Iterator[int] = iter(range(100))
        manager = LogManager(self.files, [LogDir.lock(self.files, str(self.path))])
        load_all(
            manager,
            config_of=lambda topic: CONFIG,
            is_ours=lambda tp, topic_id: tp == ORDERS and topic_id in (None, TOPIC_ID),
            new_id=lambda: f"{next(ids):032x}",
            recovery=recovery,
        )
        self.manager = manager
        return manager

    def stop(self, *, clean: bool) -> None:
        if clean:
            close_all(self.manager)
            self.manager.leave()
            return
        for log in self.manager.all():
            log.flush(T)
        for write in (
            *self.manager.recovery_point_checkpoints(), *self.manager.log_start_checkpoints(),
            *self.manager.high_watermark_checkpoints(),
        ):  # fmt: skip
            write.perform()
        self.manager.directory_failed(self.manager.directories[0])
        self.manager.leave()

    def fill(self) -> None:
        self.start()
        log = self.manager.create(ORDERS, TOPIC_ID, CONFIG, T)
        for number in range(10):
            log.stage(batch_of(b"%d" % number), leader_epoch=0)
        log.append_all(T)
        log.advance_high_watermark(10)
        log.start_offset_to(3)


def the_log(manager: LogManager) -> Log:
    log = manager.get(ORDERS)
    assert log is not None
    return log
