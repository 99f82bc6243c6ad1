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
"""What opening the files of an empty log takes about as long as."""
_TOGETHER_BYTES: Final = 32 << 20
"""Logs are checked by one task up to this size: a task of its own would cost more than its log."""


class LogPart(NamedTuple):
    """Some segments of a log, and what is known of the log. It travels to Spark's workers."""

    topic_partition: TopicPartition
    directory: str
    claims: Claims
    part: Part
    size: int
    """Bytes of its log files, or about as many."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that is to be checked, and what is known already."""

    directories: Sequence[DataDirectory]
    parts: Sequence[LogPart]
    findings: Sequence[Finding]
    """What is wrong with the directories themselves."""

    @property
    def cluster_id(self) -> str | None:
        """Whose directories they are; None if none of them says so."""
        return next((each.properties.cluster_id for each in self.directories if each.properties is not None), None)


class Surveyed(NamedTuple):
    """Data directories as they were found."""

    directories: Sequence[DataDirectory]
    findings: Sequence[Finding]

    @property
    def topics(self) -> set[str]:
        """The topics that have a log here; not the metadata log."""
        return {place.topic for directory in self.directories for place in directory.logs}


def survey_all(files: FileSystem, paths: Sequence[str]) -> Surveyed:
    """Look at data directories, all or some of one node's. Raises StorageError, FileNotFoundError."""
    found: list[Finding] = []
    findings = Findings(found.append, _nobody_counts)
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
    """What to check of these topics; None means everything, with the metadata log.

    ``live_ends`` has the high watermarks where a broker works in the directories; partitions that it does not know
    (any more) are left out. ``expiration_ms`` is how long a producer may be silent before the broker forgets it.
    """
    found = list(surveyed.findings) if topics is None else []
    findings = Findings(found.append, _nobody_counts)
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
    """The metadata log, which is written to disk before anything is answered: no checkpoint speaks of it."""
    path = f"{directory.path}/{METADATA_DIR_NAME}"
    # Which segments a running broker is writing to cannot be known from outside.
    if is_live or not files.exists(path):
        return []
    claims = Claims(
        was_clean=directory.was_clean,
        recovery_point=ALL_OF_IT if directory.was_clean else 0,
        producer_id_expiration_ms=PRODUCER_ID_EXPIRATION_MS,
    )
    return _parts(files, parse_dir_name(METADATA_DIR_NAME).topic_partition, path, claims, 1 << 62)


def tasks_of(parts: Sequence[LogPart]) -> list[list[LogPart]]:
    """What each task checks: the largest first, small ones together."""
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


def _nobody_counts(size: int) -> None:
    pass
