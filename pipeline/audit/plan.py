"""The plan of an audit: the logs of a node's data directories, split into parts for tasks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from storage.check.data_directory import DataDirectory, check_identities, check_no_log_twice, survey
from storage.check.findings import Finding, Findings
from storage.check.log_check import ALL_OF_IT, Claims, Part, split
from storage.check.log_files import LogFiles
from storage.files import FileSystem
from storage.loading import PRODUCER_ID_EXPIRATION_MS
from storage.log_dir import METADATA_DIR_NAME
from storage.topic_partition import TopicPartition, parse_dir_name

PART_BYTES: Final = 256 << 20
"""About how much of a log one task checks."""
_LEAST_COST_BYTES: Final = 1 << 16
"""The size that an empty log counts as: opening its files takes about as long as checking so many bytes."""
_TOGETHER_BYTES: Final = 32 << 20
"""Logs up to this size together are checked by one task: a task for each would take longer than the checks."""


class LogPart(NamedTuple):
    """Some segments of a log, with the claims that the checks start from. It is pickled for Spark's workers."""

    topic_partition: TopicPartition
    directory: str
    claims: Claims
    part: Part
    size: int
    """The size of the part's log files in bytes, exactly or about."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parts of logs to check, and the findings so far."""

    directories: Sequence[DataDirectory]
    parts: Sequence[LogPart]
    findings: Sequence[Finding]
    """Faults of the directories themselves."""

    @property
    def cluster_id(self) -> str | None:
        """The cluster id of the directories; None if no directory has one."""
        return next((each.properties.cluster_id for each in self.directories if each.properties is not None), None)


class Surveyed(NamedTuple):
    """Data directories, and the faults that were found when they were listed."""

    directories: Sequence[DataDirectory]
    findings: Sequence[Finding]

    @property
    def topics(self) -> set[str]:
        """The topics that have a log in these directories, without the metadata log."""
        return {place.topic for directory in self.directories for place in directory.logs}


def survey_all(files: FileSystem, paths: Sequence[str]) -> Surveyed:
    """List data directories, all or some of one node. Raises StorageError, FileNotFoundError."""
    found: list[Finding] = []
    findings = Findings(found.append, _ignore_size)
    directories = [survey(files, path, findings) for path in paths]
    check_identities(directories, findings)
    check_no_log_twice(directories, findings)
    return Surveyed(directories, found)


def plan(
    files: FileSystem,
    surveyed: Surveyed,
    topics: Iterable[str] | None,
    *,
    live_ends: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]] | None = None,
    expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    part_bytes: int = PART_BYTES,
) -> Plan:
    """Plan the checks of these topics; None means all topics and the metadata log.

    ``live_ends`` gives the high watermarks if a broker is running on the directories; partitions that the broker does
    not know (any more) are left out. ``expiration_ms`` is the broker's `producer.id.expiration.ms`.
    """
    found = list(surveyed.findings) if topics is None else []
    findings = Findings(found.append, _ignore_size)
    chosen = None if topics is None else set(topics)
    parts: list[LogPart] = []
    for directory in surveyed.directories:
        wanted = [place for place in sorted(directory.logs) if chosen is None or place.topic in chosen]
        ends = None if live_ends is None else live_ends(wanted)
        for place in wanted:
            claims = directory.claims(place, producer_id_expiration_ms=expiration_ms)
            if ends is not None:
                if place not in ends:
                    continue
                claims = replace(claims, live_end=ends[place])
            directory.check_offsets(place, findings)
            parts += _parts(files, place, directory.logs[place], claims, part_bytes)
        if chosen is None:
            parts += _metadata_parts(files, directory, is_live=live_ends is not None)
    return Plan(directories=surveyed.directories, parts=parts, findings=found)


def _parts(files: FileSystem, place: TopicPartition, directory: str, claims: Claims, part_bytes: int) -> list[LogPart]:
    try:
        log = LogFiles.found_in(files, directory)
    except FileNotFoundError:
        if claims.live_end is not None:
            return []  # deleted meanwhile
        raise
    parts = split(log, claims, part_bytes)
    return [LogPart(place, directory, claims, part, log.log_bytes // len(parts)) for part in parts]


def _metadata_parts(files: FileSystem, directory: DataDirectory, *, is_live: bool) -> list[LogPart]:
    """The metadata log, which is flushed before each answer, so that no checkpoint describes it. Empty if a broker is
    running."""
    path = f"{directory.path}/{METADATA_DIR_NAME}"
    # Which segments a running broker is writing to cannot be known from outside.
    if is_live or not files.exists(path):
        return []
    claims = Claims(
        was_clean=directory.was_clean,
        recovery_point=ALL_OF_IT if directory.was_clean else 0,
        producer_id_expiration_ms=PRODUCER_ID_EXPIRATION_MS,
        is_preallocated=True,
    )
    return _parts(files, parse_dir_name(METADATA_DIR_NAME).topic_partition, path, claims, 1 << 62)


def tasks_of(parts: Sequence[LogPart]) -> list[list[LogPart]]:
    """The parts that each task checks: large parts first, small parts together."""
    tasks: list[list[LogPart]] = []
    room = 0
    for part in sorted(parts, key=lambda part: -part.size):
        cost = max(part.size, _LEAST_COST_BYTES)
        if cost > room:
            tasks.append([])
            room = max(_TOGETHER_BYTES, cost)
        tasks[-1].append(part)
        room -= cost
    return tasks


def _ignore_size(size: int) -> None:
    pass
