"""`restore --mode segments`: a data directory gets archived topics as if it had always had them.

    staging each partition's log is built in a directory of its own, under a name that brokers ignore; this is the
                 long part (`pipeline.restore.staging`), and is done by Spark if there is a Spark; until it is over,
                 brokers see none of it
    creating a broker on the directory, started by the restore, creates the topics, empty
    placing that broker is stopped; each built log replaces the empty log; the checkpoints get the logs' starts
                 and ends; leader epochs go on where the records end
    committing the broker is started once more: its offsets must be the archived ones, and the groups' offsets are
                 committed

A step that was interrupted is started again, and keeps what was finished: see `pipeline.restore.journal`.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from config.log_config import LogConfig
from pipeline.archive.manifest import CommittedOffset
from pipeline.archive.run import At, nothing
from pipeline.errors import PipelineError
from pipeline.progress import Progress, followed
from pipeline.restore.child_broker import broker_on
from pipeline.restore.groups import commit_offsets
from pipeline.restore.journal import Journal, Step, read_journal
from pipeline.restore.metadata_log import raise_leader_epochs
from pipeline.restore.plan import Plan
from pipeline.restore.staging import (
    PART_BYTES,
    Batches,
    Part,
    StagedLog,
    WantedLog,
    parts_of,
    put_together,
    write_part,
)
from pipeline.work import GetWorkers, Workers, in_this_process
from storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    read_meta_properties,
    read_topic_id,
    write_topic_id,
)
from storage.errors import DirectoryLocked, DiskFull, WrongDirectory
from storage.file_names import LOG_SUFFIX
from storage.files import FileSystem
from storage.loading import LoadReport
from storage.log_dir import METADATA_DIR_NAME, NOT_LOGS, LogDir
from storage.topic_partition import TopicPartition, parse_dir_name

_ASIDE: Final = "stray"
"""The directory suffix of a log that a broker does not know and leaves alone."""
_LOG: Final = "log"
_PARTS: Final = "parts"
_LOCK_TIMEOUT_S: Final = 120.0
"""How long the restore waits for the lock: the broker of a restore that was killed needs time to stop."""
_SAVE_AFTER_S: Final = 1.0
"""At most about so many seconds of staging are repeated after an interruption, beside the log that was being built. The
journal, which names every partition, is not saved more often."""
_SPARE_BYTES: Final = 64 << 20
"""Bytes for indexes, the metadata log and the groups' topic."""


def restore_segments(
    archive: Batches,
    directory: str,
    *,
    wishes: str,
    make_plan: Callable[[], Plan],
    workers: GetWorkers = in_this_process,
    part_bytes: int = PART_BYTES,
    files: FileSystem | None = None,
    at: At = nothing,
) -> Journal:
    """Restore topics into the data directory of a stopped node, or into a new one. Returns the journal of the finished
    restore.

    Args:
        wishes: The options as text: an interrupted restore is only continued with the same options.
        make_plan: Called unless a restore was interrupted.
        workers: Gives the workers that build the segments; called when it is certain that there is work.
        part_bytes: About how many bytes a task writes, at least.
        at: Called with the name of each finished step, for tests that end the process there.

    Raises PipelineError; StorageError where the directory cannot be read or written.
    """
    target = _Target(files or FileSystem(), directory, at)
    journal = target.planned(wishes, make_plan, archive)
    if journal.step is Step.STAGING:
        with workers() as do:
            target.begin(journal)
            target.stage(journal, archive, do, part_bytes)
    if journal.step is Step.CREATING:
        target.create_topics(journal)
    if journal.step is Step.PLACING:
        target.place(journal)
    target.commit(journal)
    return journal


class _Target:
    """The data directory that the restore writes to."""

    def __init__(self, files: FileSystem, directory: str, at: At) -> None:
        self._files = files
        self._directory = directory
        self._at = at

    # Beginning, or going on -------------------------------------------------------------------------------------------

    def planned(self, wishes: str, make_plan: Callable[[], Plan], archive: Batches) -> Journal:
        """The journal of an interrupted restore, or a new journal with a new plan. Raises PipelineError, DiskFull if it
        cannot be done. Nothing is changed."""
        if self._files.exists(self._directory) and not self._files.is_directory(self._directory):
            raise PipelineError(f"{self._directory} is no directory")
        journal = read_journal(self._files, self._directory)
        if journal is not None:
            if journal.wishes != wishes:
                raise PipelineError(
                    f"a restore into {self._directory} was not finished; it was asked for with {journal.wishes}: do "
                    "that again first"
                )
            self._check_directory()
            return journal
        plan = make_plan()
        self._check_directory()
        self._check_names(plan)
        self._check_room(plan, archive)
        is_new = not self._files.exists(self._directory) or not self._files.list_directory(self._directory)
        return Journal(restore_id=uuid4().hex, wishes=wishes, plan=plan, is_new=is_new)

    def begin(self, journal: Journal) -> None:
        """Write the first journal of a restore. Raises DirectoryLocked."""
        self._files.make_directory(self._directory)
        with self._locked():
            journal.save(self._files, self._directory)
        self._at("begun")

    def _check_directory(self) -> None:
        """Check that the directory belongs to a node and has the metadata log. (The lock shows whether a broker runs on
        it.)"""
        if not self._files.exists(self._directory):
            return
        properties = read_meta_properties(self._files, f"{self._directory}/{META_PROPERTIES}")
        has_metadata = self._files.exists(f"{self._directory}/{METADATA_DIR_NAME}")
        if properties is None and any(entry.is_directory for entry in self._files.list_directory(self._directory)):
            if read_journal(self._files, self._directory) is None:
                raise PipelineError(
                    f"{self._directory} holds directories and is no broker's: name a new one, or a node's"
                )
        elif properties is not None and not has_metadata:
            raise PipelineError(
                f"{self._directory} has no metadata log: it is one of several directories of node "
                f"{properties.node_id}, and a restore needs the one that has it"
            )

    def _check_names(self, plan: Plan) -> None:
        wanted = {topic.name for topic in plan.topics}
        taken = sorted({place.topic for place in self._partitions()} & wanted)
        if taken:
            raise PipelineError(
                f"{self._directory} has topics of these names already: {', '.join(taken)}; --topic-map gives new ones"
            )

    def _partitions(self) -> list[TopicPartition]:
        """The partitions whose logs are in this directory."""
        if not self._files.exists(self._directory):
            return []
        found = []
        for entry in self._files.list_directory(self._directory):
            try:
                place, fate = parse_dir_name(entry.name)
            except WrongDirectory:
                continue
            if entry.is_directory and not fate and entry.name not in NOT_LOGS:
                found.append(place)
        return found

    def _check_room(self, plan: Plan, archive: Batches) -> None:
        needed = _SPARE_BYTES + sum(
            archive.log_bytes(topic.source, partition.number)
            for topic in plan.topics
            for partition in topic.partitions
            if partition.from_offset < partition.until_offset
        )
        place = self._directory
        while not self._files.exists(place):
            place = place.rpartition("/")[0] or "/"
        total, usable = self._files.space(place)
        if total and needed > usable:
            raise DiskFull(f"{self._directory} has room for {usable} bytes, and the restore needs {needed}")

    @contextmanager
    def _locked(self) -> Iterator[LogDir]:
        """Lock the directory. At the end its clean-shutdown marker is as before. Raises DirectoryLocked."""
        deadline = time.monotonic() + (_LOCK_TIMEOUT_S if read_journal(self._files, self._directory) else 0)
        while True:
            try:
                directory = LogDir.lock(self._files, self._directory)
                break
            except DirectoryLocked:
                # The broker of a restore that was killed stops when it notices.
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.1)
        try:
            yield directory
        except BaseException:
            directory.leave(clean=False, broker_epoch=-1)
            raise
        # Only who has taken the marker away puts it back.
        epoch = directory.begin_loading() if directory.was_clean else None
        directory.leave(clean=epoch is not None, broker_epoch=-1 if epoch is None else epoch)

    # Staging ----------------------------------------------------------------------------------------------------------

    def stage(self, journal: Journal, archive: Batches, do: Workers, part_bytes: int) -> None:
        """Build all logs in directories that brokers ignore."""
        try:
            if not journal.staged:
                self._ask_broker(journal.plan)
            self._stage_all(journal, archive, do, part_bytes)
        except (DiskFull, PipelineError):
            # No broker or client has seen any of it, so it can be undone.
            self._forget(journal)
            raise
        self._at("staged")

    def _ask_broker(self, plan: Plan) -> None:
        """Check, before the long work, that the topics can be created: names, configs. The broker formats a new
        directory."""
        self._wait_for_lock()
        with broker_on(self._directory, self._broker_settings()) as broker:
            for topic in plan.topics:
                broker.check_topic(topic.name, partitions=len(topic.partitions), configs=topic.configs)

    def _stage_all(self, journal: Journal, archive: Batches, do: Workers, part_bytes: int) -> None:
        with self._locked():
            missing = [log for log in self._logs(journal) if log.place not in journal.staged]
            parts = dict(zip(missing, do(parts_of, missing, archive, part_bytes), strict=True))
            self._write_parts(parts, archive, do)
            self._put_together(journal, parts)
            journal.step = Step.CREATING
            journal.save(self._files, self._directory)

    def _logs(self, journal: Journal) -> Iterator[WantedLog]:
        """The logs of the plan."""
        for topic in journal.plan.topics:
            config = LogConfig().with_overrides(topic.configs)
            for partition in topic.partitions:
                place = TopicPartition(topic.name, partition.number)
                yield WantedLog(topic.source, place, partition.offsets, config, self._aside(journal, place, _PARTS))

    def _write_parts(self, parts: Mapping[WantedLog, Sequence[Part]], archive: Batches, do: Workers) -> None:
        """Write those parts of the logs that do not exist yet."""
        todo = []
        for log, of_log in parts.items():
            self._files.make_directory(log.parts_directory)
            there = {entry.name for entry in self._files.list_directory(log.parts_directory)}
            for unfinished in there - {part.name for part in of_log}:
                self._files.remove_tree(f"{log.parts_directory}/{unfinished}")
            todo += [part for part in of_log if part.name not in there]
        total = sum(part.bytes for of_log in parts.values() for part in of_log)
        with followed(Progress("restoring", total), lambda: self._written(parts)):
            for _ in do(write_part, todo, archive, self._files, self._at):
                pass

    def _written(self, logs: Iterable[WantedLog]) -> int:
        """How many bytes of these logs' parts have been written."""
        directories = [
            f"{log.parts_directory}/{part.name}"
            for log in logs
            for part in self._files.list_directory(log.parts_directory)
        ]
        return sum(entry.size for directory in directories for entry in self._files.list_directory(directory))

    def _put_together(self, journal: Journal, parts: Mapping[WantedLog, Sequence[Part]]) -> None:
        """Build each log from its parts."""
        report = LoadReport()
        total = sum(part.bytes for of_log in parts.values() for part in of_log)
        saved = time.monotonic()
        with followed(Progress("checking", total), lambda: report.bytes_recovered):
            for log, of_log in parts.items():
                journal.staged[log.place] = put_together(
                    self._files, self._aside(journal, log.place, _LOG), log, of_log, report=report, now_ms=_now_ms()
                )
                self._at("staged a log")
                if time.monotonic() - saved >= _SAVE_AFTER_S:
                    journal.save(self._files, self._directory)
                    saved = time.monotonic()

    def _forget(self, journal: Journal) -> None:
        """Remove everything that the restore has written."""
        if journal.is_new and not self._partitions():
            for entry in self._files.list_directory(self._directory):
                path = f"{self._directory}/{entry.name}"
                (self._files.remove_tree if entry.is_directory else self._files.remove)(path)
            return
        for log in self._logs(journal):
            self._files.remove_tree(log.parts_directory)
            self._files.remove_tree(self._aside(journal, log.place, _LOG))
        journal.remove(self._files, self._directory)

    def _aside(self, journal: Journal, place: TopicPartition, what: str) -> str:
        """The path of the directory in which a log, or its parts, are built."""
        # Long names are cut, so the partition is in the id, too.
        unique = hashlib.sha256(f"{journal.restore_id} {place} {what}".encode()).hexdigest()[:32]
        return f"{self._directory}/{place.suffixed_dir_name(unique, _ASIDE)}"

    # Creating topics --------------------------------------------------------------------------------------------------

    def _broker_settings(self) -> dict[str, str]:
        properties = read_meta_properties(self._files, f"{self._directory}/{META_PROPERTIES}")
        return {} if properties is None else {"node.id": str(properties.node_id)}

    def create_topics(self, journal: Journal) -> None:
        """Create the topics, empty. Topics that exist were created before an interruption."""
        self._wait_for_lock()
        with broker_on(self._directory, self._broker_settings()) as broker:
            there = broker.topics()
            for topic in journal.plan.topics:
                if topic.name not in there:
                    broker.create_topic(topic.name, partitions=len(topic.partitions), configs=topic.configs)
                    self._at("created a topic")
        journal.step = Step.PLACING
        journal.save(self._files, self._directory)
        self._at("created")

    def _wait_for_lock(self) -> None:
        with self._locked():
            pass

    # Placing ----------------------------------------------------------------------------------------------------------

    def place(self, journal: Journal) -> None:
        """Replace the broker's empty logs by the built logs."""
        with self._locked() as directory:
            was_clean = directory.begin_loading() is not None
            epochs: dict[tuple[bytes, int], int] = {}
            for place, staged in journal.staged.items():
                topic_id = self._place_log(journal, place)
                # The next leader begins an epoch of his own, as after every election.
                epochs[topic_id, place.partition] = staged.latest_epoch + 1
            self._files.fsync_directory(self._directory)
            self._at("placed")
            self._write_checkpoints(directory, journal.staged)
            self._at("checkpoints written")
            raise_leader_epochs(self._files, self._directory, epochs, was_clean=was_clean, now_ms=_now_ms())
            self._at("epochs raised")
            journal.step = Step.COMMITTING
            journal.save(self._files, self._directory)

    def _place_log(self, journal: Journal, place: TopicPartition) -> bytes:
        """Replace the empty log of a partition by its built log, unless this was done before. Returns the topic id."""
        path, aside = f"{self._directory}/{place.dir_name}", self._aside(journal, place, _LOG)
        if self._files.exists(aside):
            if self._files.exists(path):
                topic_id = read_topic_id(self._files, f"{path}/{PARTITION_METADATA}")
                if topic_id is None or self._has_records(path):
                    raise PipelineError(
                        f"{path} was written to while a restore into {self._directory} was not finished; delete the "
                        f"topic {place.topic} with a broker, and restore again"
                    )
                write_topic_id(self._files, f"{aside}/{PARTITION_METADATA}", topic_id)
                self._files.fsync_directory(aside)
                self._files.remove_tree(path)
                self._at("removed an empty log")
            self._files.rename(aside, path)
            self._at("placed a log")
        topic_id = read_topic_id(self._files, f"{path}/{PARTITION_METADATA}")
        if topic_id is None:
            raise PipelineError(f"{path} names no topic id")
        return topic_id

    def _has_records(self, path: str) -> bool:
        return any(entry.name.endswith(LOG_SUFFIX) and entry.size for entry in self._files.list_directory(path))

    def _write_checkpoints(self, directory: LogDir, staged: Mapping[TopicPartition, StagedLog]) -> None:
        ends = {place: one.end_offset for place, one in staged.items()}
        starts = {place: one.start_offset for place, one in staged.items() if one.start_offset}
        for name, known, added in (
            (RECOVERY_POINTS, directory.recovery_points(), ends),
            (HIGH_WATERMARKS, directory.high_watermarks(), ends),
            (LOG_START_OFFSETS, directory.log_start_offsets(), starts),
        ):
            write = directory.checkpoint(name, {**known, **added})
            if write is not None:
                write.perform()

    # Committing -------------------------------------------------------------------------------------------------------

    def commit(self, journal: Journal) -> None:
        """Check that a broker finds the restored offsets, and commit the groups' offsets."""
        self._wait_for_lock()
        with broker_on(self._directory, self._broker_settings()) as broker:
            found = broker.bounds(journal.staged)
            for place, staged in journal.staged.items():
                bounds = found[place]
                if (bounds.start_offset, bounds.high_watermark) != (staged.start_offset, staged.end_offset):
                    raise PipelineError(
                        f"the broker finds {place} from offset {bounds.start_offset} up to {bounds.high_watermark}, "
                        f"and restored were {staged.start_offset} up to {staged.end_offset}"
                    )
            commit_offsets(broker, _within(journal))
            self._at("committed")
        journal.remove(self._files, self._directory)
        self._at("finished")


def _within(journal: Journal) -> list[CommittedOffset]:
    """The groups' offsets, none of them above the end of the restored log."""
    return [
        one._replace(offset=min(one.offset, journal.staged[TopicPartition(one.topic, one.partition)].end_offset))
        for one in journal.plan.committed
    ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
