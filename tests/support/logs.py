"""A partition's log in a directory of the test, with batches for tests."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from config.log_config import LogConfig
from storage.appending import StagedAppend
from storage.batch.record_batch import BatchHeader, Codec, read_header
from storage.batch.records import Record, encode_batch, iterate_records
from storage.batch.validation import ValidatedBatch
from storage.errors import LogDirFailed
from storage.loading import AFTER_UNCLEAN_STOP, LoadReport, open_log
from storage.log import Log
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.open_files import OpenFiles
from storage.topic_partition import TopicPartition
from tests.support.files import FaultyFileSystem

T = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)
SMALL = {"segment_index_bytes": 12_000, "retention_ms": -1}


def batch_of(
    *values: bytes,
    timestamp: int = T,
    step_ms: int = 0,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    is_transactional: bool = False,
    codec: Codec = Codec.NONE,
) -> ValidatedBatch:
    """A batch of records with these values, the first at ``timestamp``, each later record ``step_ms`` after the record
    before."""
    records = [Record(timestamp=timestamp + n * step_ms, value=value) for n, value in enumerate(values)]
    data = encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence if producer_id >= 0 else -1,
        is_transactional=is_transactional,
        codec=codec,
    )
    return ValidatedBatch(header=read_header(data), data=memoryview(data), log_append_time_ms=-1)


def marker(
    producer_id: int, *, epoch: int = 0, commit: bool, coordinator_epoch: int = 0, timestamp: int = T
) -> bytearray:
    """A transaction marker as a coordinator writes it."""
    record = Record(
        timestamp=timestamp,
        key=b"\0\0\0\1" if commit else b"\0\0\0\0",
        value=b"\0\0" + coordinator_epoch.to_bytes(4, "big"),
    )
    return encode_batch([record], producer_id=producer_id, producer_epoch=epoch, is_transactional=True, is_control=True)


@dataclass
class LogHome:
    """The directory of one log, which is opened and closed several times."""

    path: Path
    files: FaultyFileSystem = field(default_factory=FaultyFileSystem)
    config: LogConfig = field(default_factory=lambda: LogConfig(**SMALL))
    now_ms: int = T
    open_files: OpenFiles = field(default_factory=lambda: OpenFiles(8))
    report: LoadReport = field(default_factory=LoadReport)

    @property
    def directory(self) -> str:
        return str(self.path / ORDERS.dir_name)

    def open(self, *, clean: bool = False, recovery_point: int = 0, **given: int) -> Log:
        """Open the log as a start of the broker does, after a clean stop or not."""
        self.report = LoadReport()
        self.files.disk.reads.clear()
        return open_log(
            self.files,
            self.directory,
            topic_partition=ORDERS,
            config=self.config,
            now_ms=self.now_ms,
            was_clean=clean,
            recovery_point=recovery_point,
            open_files=self.open_files,
            report=self.report,
            **given,
        )

    def names(self) -> list[str]:
        """The files in the log's directory."""
        return sorted(entry.name for entry in Path(self.directory).iterdir())

    def bytes_of(self, name: str) -> bytes:
        """The content of a file in the log's directory."""
        return (Path(self.directory) / name).read_bytes()

    def append(self, log: Log, batch: ValidatedBatch, *, leader_epoch: int = 0) -> StagedAppend:
        """Append a batch in all three steps, and advance the high watermark."""
        staged = log.stage(batch, leader_epoch=leader_epoch)
        log.append_all(self.now_ms)
        log.advance_high_watermark(log.log_end_offset)
        return staged

    def append_values(self, log: Log, *values: bytes) -> None:
        """Append a batch for each value."""
        for value in values:
            self.append(log, batch_of(value))


def segmented(home: LogHome, count: int = 10, **settings: object) -> Log:
    """A log with a segment for each pair of records, a minute from one to the next."""
    size = batch_of(b"0").header.size
    home.config = home.config.replace(segment_bytes=2 * size, **settings)  # type: ignore[arg-type]
    log = home.open()
    for number in range(count):
        home.append(log, batch_of(b"%d" % number, timestamp=T + number * 60_000))
    return log


def load_all(
    manager: LogManager,
    *,
    config_of: Callable[[str], LogConfig],
    is_ours: Callable[[TopicPartition, bytes | None], bool],
    assigned: Callable[[TopicPartition], LogDir | None] = lambda _: None,
    new_id: Callable[[], str] = lambda: "ab" * 16,
    now_ms: int = T,
    recovery: str = AFTER_UNCLEAN_STOP,
) -> None:
    """Open all logs in a manager's directories, as a start does, without threads."""
    found = list(
        manager.find(config_of=config_of, is_ours=is_ours, assigned=assigned, new_id=new_id, recovery=recovery)
    )
    for one in found:
        for _ in manager.open(one, now_ms):
            pass
    manager.loaded()


def close_all(manager: LogManager, now_ms: int = T) -> None:
    """Close all logs, as a clean stop does, without threads."""
    for closing in manager.begin_close(now_ms):
        try:
            closing.perform()
        except LogDirFailed as error:
            manager.fail(closing.directory, error)
        else:
            manager.complete_close(closing)
    manager.write_checkpoints()


def headers_in(data: bytes) -> list[BatchHeader]:
    """The headers of the whole batches in fetched bytes."""
    headers, position = [], 0
    while position + 61 <= len(data):
        header = read_header(data, position)
        if position + header.size > len(data):
            break
        headers.append(header)
        position += header.size
    return headers


def values_in(log: Log, from_offset: int = 0) -> list[bytes | None]:
    """The values of all records from an offset on, read as in a replay."""
    return [
        record.value
        for header, data in log.batches(from_offset)
        if not header.is_control
        for record in iterate_records(data)
        if record.offset >= from_offset
    ]
