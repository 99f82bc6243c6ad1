"""Runs that meet what they did not expect: each ends with a sentence, and nothing is half-written or seen twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dev.repository import REPOSITORY
from pipeline.archive.archive import Archive
from pipeline.archive.durable import Unwritable, make_directory
from pipeline.archive.locking import as_archiver, changing
from pipeline.archive.manifest import CommittedOffset, Gap, read_manifest
from pipeline.archive.places import BOOKS, run_name, runs
from pipeline.archive.planning import read_plan
from pipeline.archive.range_archiving import Receipt, Task, archive_range
from pipeline.archive.run import At, Known, nothing
from pipeline.archive.verification import findings
from pipeline.errors import DamagedLog, PipelineError, RecordsGone
from tests.pipeline.archive.archives import (
    archive,
    compacted,
    in_process,
    seen_by_duckdb,
    seen_by_pyarrow,
    source_of,
)
from tests.support.batches import T, end_marker, record, records
from tests.support.partitions import TOPIC, PartitionOnDisk
from tests.support.small_disk import NoSmallDisk, SmallDisk

DAY_MS = 86_400_000


@pytest.fixture
def log(tmp_path: Path) -> PartitionOnDisk:
    log = PartitionOnDisk(tmp_path / "orders-0")
    for _ in range(4):
        log.append(5)
    return log


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def offsets(dest: Path) -> list[int]:
    """What every reader of the directory sees."""
    found = seen_by_pyarrow(dest)
    assert found == seen_by_duckdb(dest)
    return [offset for _, _, offset in found]


def damages(dest: Path) -> list[str]:
    manifest = read_manifest(dest)
    assert manifest is not None
    return [str(found) for found in findings(Archive(dest, manifest), lambda size: None) if found.is_damage]


class Dies(Exception):
    """What a test lets happen in the middle."""


def dying_after(count: int, *, error: type[Exception] = Dies) -> object:
    """Work that does so many tasks and fails then."""

    def work(tasks: Sequence[Task], run: Path, at: At) -> list[Receipt]:
        for task in tasks[:count]:
            archive_range(task, at)
        raise error

    return work


def test_rows_are_put_by_topic_and_date_and_say_in_their_names_where_they_belong(
    log: PartitionOnDisk, dest: Path
) -> None:
    log.append(records(3, timestamp=T + DAY_MS))

    archive(dest, source_of(log))

    assert sorted(path.relative_to(dest).as_posix() for path in dest.rglob("*.parquet")) == [
        "topic=orders/date=2023-11-14/part-0-0-23.parquet",
        "topic=orders/date=2023-11-15/part-0-0-23.parquet",
    ]
    assert sorted(path.name for path in (dest / BOOKS).iterdir()) == ["batches", "lock", "manifest.json"]
    assert offsets(dest) == list(range(23))


def test_rows_can_be_put_by_topic_only(log: PartitionOnDisk, dest: Path) -> None:
    log.append(records(3, timestamp=T + DAY_MS))

    archive(dest, source_of(log), partition_by=("topic",))

    assert [path.relative_to(dest).as_posix() for path in dest.rglob("*.parquet")] == [
        "topic=orders/part-0-0-23.parquet"
    ]
    compacted(dest)
    assert offsets(dest) == list(range(23))


def test_more_dates_than_files_may_be_open_at_once(
    log: PartitionOnDisk, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.archive.range_archiving.MOST_OPEN_FILES", 2)
    for day in range(7):
        log.append(records(2, timestamp=T + day * DAY_MS))

    archive(dest, source_of(log))

    assert offsets(dest) == list(range(34))
    assert len(Archive.open(dest).files()) == 7
    assert damages(dest) == []


def test_a_range_that_is_compacted_between_two_readings_is_archived_anew(
    log: PartitionOnDisk, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.archive.range_archiving.MOST_OPEN_FILES", 1)
    for day in (1, 2):
        log.append(records(2, timestamp=T + day * DAY_MS))
    copy = PartitionOnDisk(log.directory.with_name("copy"))
    copy.skip_to(21)
    copy.append(records(1, timestamp=T + DAY_MS))
    copy.append(records(2, timestamp=T + 3 * DAY_MS))
    cleaned = [copy.segments[0].path(".log")]

    def clean_after_the_first_reading(step: str) -> None:
        if step == "rows written" and cleaned:
            os.replace(cleaned.pop(), log.segments[0].path(".log"))

    archive(dest, source_of(log), at=clean_after_the_first_reading)

    assert not cleaned
    assert offsets(dest) == [21, 22, 23]
    assert damages(dest) == []
    assert sum(len(rows) for rows in Archive.open(dest).rows(TOPIC, 0)) == 3
    assert len(list(Archive.open(dest).batches(TOPIC, 0))) == 2


def test_read_uncommitted_has_the_records_of_aborted_transactions_too(log: PartitionOnDisk, dest: Path) -> None:
    aborted = log.append(3, producer_id=4, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = log.append(end_marker(commit=False, producer_id=4, producer_epoch=0))
    log.index_abort(4, aborted, marker, marker + 1)

    archive(dest, source_of(log), isolation="read_uncommitted")
    archive(dest.with_name("committed"), source_of(log))

    assert offsets(dest) == list(range(23))
    assert offsets(dest.with_name("committed")) == list(range(20))
    assert damages(dest) == damages(dest.with_name("committed")) == []


def test_a_second_run_adds_what_is_new(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=10))
    once = archive(dest, source_of(log))
    again = archive(dest, source_of(log))

    assert offsets(dest) == list(range(20))
    assert once == again, "nothing new, nothing published"


@pytest.mark.parametrize("done", [0, 1, 3])
def test_a_run_that_failed_is_ended_by_the_next_one_with_the_same_ranges(
    log: PartitionOnDisk, dest: Path, done: int
) -> None:
    with pytest.raises(Dies):
        archive(dest, source_of(log), range_bytes=150, work=dying_after(done))
    planned = read_plan(dest)
    log.append(5)
    redone: list[Task] = []

    def work(tasks: Sequence[Task], run: Path, at: At) -> list[Receipt]:
        redone.extend(tasks)
        return in_process(tasks, run, at)

    archive(dest, source_of(log), range_bytes=1 << 20, work=work)

    assert planned is not None
    assert [task.stretch for task in redone[:-1]] == list(planned.ranges[done:]), "what has a receipt is not done again"
    assert offsets(dest) == list(range(25))
    assert read_plan(dest) is None
    assert damages(dest) == []


def test_a_task_of_a_run_that_died_cannot_put_anything_in_place_any_more(log: PartitionOnDisk, dest: Path) -> None:
    left: list[Task] = []

    def work(tasks: Sequence[Task], run: Path, at: At) -> list[Receipt]:
        left.extend(tasks)
        raise Dies

    with pytest.raises(Dies):
        archive(dest, source_of(log), range_bytes=150, work=work)
    archive(dest, source_of(log))
    compacted(dest)

    for task in left:
        with pytest.raises(Unwritable):
            archive_range(task, nothing)

    assert offsets(dest) == list(range(20))


def test_a_task_of_an_attempt_that_died_cannot_disturb_the_next_one(log: PartitionOnDisk, dest: Path) -> None:
    left: list[Task] = []

    def work(tasks: Sequence[Task], run: Path, at: At) -> list[Receipt]:
        left.extend(tasks)
        for task in left[: -len(tasks)]:
            with pytest.raises(Unwritable):
                archive_range(task, nothing)
        raise Dies

    for _ in range(2):
        with pytest.raises(Dies):
            archive(dest, source_of(log), work=work)

    assert len(left) == 2
    assert list(dest.rglob("*.parquet")) == []


def test_records_that_go_between_plan_and_retry_are_a_gap_if_that_is_accepted(log: PartitionOnDisk, dest: Path) -> None:
    with pytest.raises(Dies):
        archive(dest, source_of(log), range_bytes=150, work=dying_after(2))
    assert offsets(dest) == list(range(10))
    later = source_of(log, start=15)

    with pytest.raises(RecordsGone, match=r"orders-0 from 10 to 15; --accept-gap"):
        archive(dest, later)
    manifest = archive(dest, later, accepts_gaps=True)

    assert offsets(dest) == [*range(10), *range(15, 20)]
    (topic,) = manifest.topics.values()
    assert topic.partitions[0].gaps == (Gap(10, 15, "deleted before it was archived"),)
    assert damages(dest) == []


def test_what_the_log_has_lost_to_compaction_since_is_not_left_lying_in_another_date(
    log: PartitionOnDisk, dest: Path, tmp_path: Path
) -> None:
    other = PartitionOnDisk(tmp_path / "compacted" / "orders-0")
    other.skip_to(5)
    for _ in range(3):
        other.append(5)
    old = PartitionOnDisk(tmp_path / "old" / "orders-0")
    old.append(records(5, timestamp=T - DAY_MS))
    for _ in range(3):
        old.append(5)

    def work(tasks: Sequence[Task], run: Path, at: At) -> list[Receipt]:
        done = in_process(tasks, run, at)
        for path in run.iterdir():
            path.unlink()  # it died before it could leave its receipt
        assert done
        raise Dies

    with pytest.raises(Dies):
        archive(dest, source_of(old), work=work)
    assert offsets(dest) == list(range(20))
    archive(dest, source_of(other))

    assert offsets(dest) == list(range(5, 20))
    assert damages(dest) == []


def test_a_damaged_batch_ends_a_run_or_is_passed_over_and_written_down(log: PartitionOnDisk, dest: Path) -> None:
    (segment,) = log.segments
    segment.change(segment.positions[1] + 70, b"xx")

    with pytest.raises(DamagedLog, match=r"\.log at \d+ \(offset 5\): found the CRC"):
        archive(dest, source_of(log))
    assert list(dest.rglob("*.parquet")) == []
    manifest = archive(dest, source_of(log), skip_damaged=True)

    assert offsets(dest) == [*range(5), *range(10, 20)]
    (topic,) = manifest.topics.values()
    ((first, until, reason),) = topic.partitions[0].gaps
    assert (first, until) == (5, 10)
    assert "found the CRC" in reason
    assert damages(dest) == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"name": "weekly"}, "is an archive of --name nightly, not weekly"),
        ({"cluster_id": "another"}, "is an archive of cluster Lq2xlGBqTcCbPwVhzU0q5A, not another"),
        ({"isolation": "read_uncommitted"}, "is an archive of --isolation read_committed, not read_uncommitted"),
        ({"partition_by": ("topic",)}, "is an archive of --partition-by topic,date, not topic"),
    ],
)
def test_a_destination_that_belongs_to_another_archive_is_refused(
    log: PartitionOnDisk, dest: Path, other: dict[str, object], said: str
) -> None:
    archive(dest, source_of(log, until=10))

    with pytest.raises(PipelineError, match=said):
        archive(dest, source_of(log), **other)

    assert offsets(dest) == list(range(10))


def test_a_destination_with_something_else_in_it_is_refused(log: PartitionOnDisk, dest: Path) -> None:
    dest.mkdir()
    (dest / "thesis.txt").write_text("x")

    with pytest.raises(PipelineError, match=r"is no archive, and not empty: there is thesis\.txt"):
        archive(dest, source_of(log))


def test_two_processes_do_not_archive_to_one_destination(dest: Path) -> None:
    dest.mkdir()
    code = (
        "import sys; from pathlib import Path; from pipeline.archive.locking import as_archiver\n"
        f"with as_archiver(Path({str(dest)!r})): print('in', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in\n"

        with (
            pytest.raises(PipelineError, match=rf"another process archives to .* \(process id {other.pid}\)"),
            as_archiver(dest),
        ):
            pass

        other.kill()
    with as_archiver(dest), changing(dest):
        pass


def test_a_destination_that_cannot_be_written_to_is_a_sentence() -> None:
    with pytest.raises(Unwritable, match=r"cannot write /proc/archive: "):
        make_directory(Path("/proc/archive"))


def test_a_destination_that_is_full_is_a_sentence_and_nothing_is_half_written(
    log: PartitionOnDisk, tmp_path: Path
) -> None:
    try:
        disk = SmallDisk(tmp_path / "disk", megabytes=2)
    except NoSmallDisk as reason:
        pytest.skip(str(reason))
    try:
        dest = disk.path / "archive"
        archive(dest, source_of(log, until=10))
        log.append([record(os.urandom(1 << 20)) for _ in range(3)])

        with pytest.raises(Unwritable, match="there is no room left for"):
            archive(dest, source_of(log))

        assert offsets(dest) == list(range(20)), "what had room is there, once"
        assert damages(dest) == []
        left = {path.suffix for run in runs(dest) for path in (dest / run_name(*run)).iterdir()}
        assert left <= {".json"}, "receipts, and nothing half-written"
    finally:
        disk.close()


def test_configs_and_groups_are_as_the_last_run_saw_them(log: PartitionOnDisk, dest: Path) -> None:
    committed = CommittedOffset("billing", TOPIC, 0, 7, -1, "")
    known = Known(partition_counts={TOPIC: 3}, configs={TOPIC: {"retention.ms": "5"}}, groups=(committed,))

    archive(dest, source_of(log, until=10), known=known)
    manifest = archive(dest, source_of(log))

    assert manifest.groups == (committed,)
    assert manifest.topics[TOPIC].configs == {"retention.ms": "5"}
    later = committed._replace(offset=9)
    assert archive(dest, source_of(log), known=Known(partition_counts={}, groups=(later,))).groups == (later,)


def test_compaction_waits_for_a_run_to_be_ended(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=10), range_bytes=150)
    with pytest.raises(Dies):
        archive(dest, source_of(log), work=dying_after(0))

    with pytest.raises(PipelineError, match="has not ended; let it end first"):
        compacted(dest)
