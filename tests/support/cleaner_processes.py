"""The processes that clean logs for a broker: found, killed, and what they have done."""

import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

from broker.logs.cleaner_process import CHILD
from dev.broker_process import BrokerProcess
from dev.waiting import until
from storage.checkpoints import CLEANER_OFFSETS, read_offset_checkpoint
from storage.file_names import LOG_SUFFIX, offset_in
from storage.files import FileSystem
from storage.topic_partition import TopicPartition


def cleaner_processes(broker: BrokerProcess) -> list[int]:
    """The ids of the processes that clean for a broker."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            words = (directory / "cmdline").read_bytes().split(b"\0")
            if CHILD.encode() in words and str(broker.process.pid).encode() in words:
                found.append(int(directory.name))
    return found


def await_cleaner(broker: BrokerProcess) -> int:
    """Wait until a log is being cleaned; the id of a process that does so."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = cleaner_processes(broker)
        return bool(found)

    until(is_there, "a process that cleans")
    return found[0]


def kill_cleaner(broker: BrokerProcess) -> None:
    """Wait until a log is being cleaned, kill the process that does so, and wait until the broker has noticed."""
    pid = await_cleaner(broker)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: pid not in cleaner_processes(broker), f"process {pid} is gone")


def segment_bases(directory: Path) -> list[int]:
    """The base offsets of a log's segments."""
    return sorted(base for path in directory.iterdir() if (base := offset_in(path.name, LOG_SUFFIX)) is not None)


def is_cleaned(data: Path, place: TopicPartition) -> bool:
    """Whether a log is clean up to its active segment, and no file of a replaced segment is left."""
    directory = data / place.dir_name
    cleaned = read_offset_checkpoint(FileSystem(), str(data / CLEANER_OFFSETS)).get(place)
    names = [path.name for path in directory.iterdir()]
    return cleaned == max(segment_bases(directory)) and not any(name.endswith((".deleted", ".swap")) for name in names)


def await_cleaned(data: Path, *topics: str, partitions: int = 1) -> None:
    """Wait until the logs of topics are cleaned."""
    for topic in topics:
        for number in range(partitions):
            place = TopicPartition(topic, number)
            until(partial(is_cleaned, data, place), f"{place} is clean")
