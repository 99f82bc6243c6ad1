"""Recovering one log in a process of its own: the messages to that process and from it.

Messages are plain data, a JSON line each:

    ->  {"directory": ..., "topic_partition": ..., ...}    the order: every field of `RecoveryOrder`
    <-  {"bytes_read": 4194304}                            every few MB
    <-  {"producers": [...]}                               the log's producers, a thousand a line
    <-  {"report": {...}}                                  done; or
    <-  {"failure": "DiskFull", "text": ...}               why it could not be done

Afterwards the log's files are as a clean stop leaves them, but not synced: the recovery point stays where it was.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from config.log_config import LogConfig
from storage.errors import DiskFull, FilesRemoved, LogDirFailed, StorageError, TooManyOpenFiles
from storage.files import FileSystem
from storage.loading import LoadReport, load_log
from storage.log import Log
from storage.producer_state import ProducedBatch, ProducerEntry
from storage.topic_partition import TopicPartition

Message = dict[str, Any]

_FAILURES: Final = {error.__name__: error for error in (DiskFull, FilesRemoved, LogDirFailed, TooManyOpenFiles)}
_PRODUCERS_A_LINE: Final = 1000
_DEFAULTS: Final = LogConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOrder:
    """The log to recover, with all arguments that `storage.loading.load_log` needs."""

    directory: str
    topic_partition: TopicPartition
    config: LogConfig
    now_ms: int
    recovery_point: int
    log_start_offset: int
    high_watermark: int
    cleaned_to: int | None
    was_clean: bool
    recovery: str
    producer_id_expiration_ms: int

    def to_message(self) -> Message:
        """The order as a JSON object."""
        message = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        message["config"] = {
            name: sorted(value) if isinstance(value, frozenset) else value for name, value in self.config
        }
        return message

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> "RecoveryOrder":
        """The order from a message that `to_message` made."""
        # JSON has lists only: a field whose default is a set or a tuple is converted back.
        config = {name: type(getattr(_DEFAULTS, name))(value) for name, value in message["config"].items()}
        return cls(
            **dict(message)
            | {"topic_partition": TopicPartition(*message["topic_partition"]), "config": LogConfig(**config)}
        )


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """The state of a log that has just been recovered in another process."""

    report: LoadReport
    producers: tuple[ProducerEntry, ...]
    """Producers at the log's end, with all batches that a retry may repeat; a snapshot keeps only the last one."""


def perform(files: FileSystem, order: RecoveryOrder) -> Iterator[Message]:
    """Recover a log; yields the messages for the broker."""
    report = LoadReport()
    steps = load_log(
        files,
        order.directory,
        topic_partition=order.topic_partition,
        config=order.config,
        now_ms=order.now_ms,
        recovery_point=order.recovery_point,
        log_start_offset=order.log_start_offset,
        high_watermark=order.high_watermark,
        cleaned_to=order.cleaned_to,
        was_clean=order.was_clean,
        recovery=order.recovery,
        producer_id_expiration_ms=order.producer_id_expiration_ms,
        report=report,
    )
    try:
        while True:
            try:
                yield {"bytes_read": next(steps)}
            except StopIteration as stop:
                log: Log = stop.value
                break
        producers = [list(entry) for entry in log.producers]
        log.settle()
        log.leader_epochs.save()
    except tuple(_FAILURES.values()) as error:
        name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _FAILURES)
        yield {"failure": name, "text": str(error)}
        return
    for first in range(0, len(producers), _PRODUCERS_A_LINE):
        yield {"producers": producers[first : first + _PRODUCERS_A_LINE]}
    yield {"report": dataclasses.asdict(report)}


def conclude(messages: Iterable[Message]) -> RecoveredLog:
    """Make a `RecoveredLog` of the messages that came back for an order, without those of progress.

    Raises the error that kept the log from being recovered: DiskFull, LogDirFailed, TooManyOpenFiles."""
    producers: list[ProducerEntry] = []
    report: LoadReport | None = None
    for message in messages:
        if "failure" in message:
            error: type[StorageError] = _FAILURES[message["failure"]]
            raise error(message["text"])
        if "report" in message:
            report = LoadReport(**message["report"])
        producers += map(_from_list, message.get("producers", ()))
    assert report is not None, "an answer ends with a report or a failure"
    return RecoveredLog(report, tuple(producers))


def _from_list(fields: list[Any]) -> ProducerEntry:
    producer_id, epoch, batches, *rest = fields
    return ProducerEntry(producer_id, epoch, tuple(ProducedBatch(*batch) for batch in batches), *rest)
