"""A broker around a log manager: started, stopped and killed, on one or more data directories."""

from pathlib import Path

from config.log_config import LogConfig
from storage.log import Log
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition
from tests.support.files import FaultyFileSystem
from tests.support.logs import SMALL, T, batch_of, close_all, load_all

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
        self.assigned: dict[TopicPartition, Path] = {}
        """In which directory the metadata has a log."""

    def start(self) -> LogManager:
        self.manager = LogManager(self.files, [LogDir.lock(self.files, str(path)) for path in self.paths])
        directories = {directory.path: directory for directory in self.manager.directories}
        numbers = iter(range(1000))
        load_all(
            self.manager,
            config_of=lambda topic: CONFIG,
            is_ours=lambda tp, topic_id: self.ids.get(tp.topic) == topic_id,
            assigned=lambda tp: directories.get(str(self.assigned.get(tp))),
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
