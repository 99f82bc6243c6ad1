"""What a run plans, without files: what is new, what has gone, what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.archive.manifest import ArchivedPartition, ArchivedTopic, Gap, Manifest, NoArchive, publish, read_manifest
from pipeline.archive.places import BOOKS, MANIFEST, Stretch
from pipeline.archive.planning import LogWentBack, Partition, Plan, make_plan, read_plan, readable, write_plan
from pipeline.errors import PipelineError, RecordsGone
from pipeline.reading.ranges import Bounds

ID = "y3mDPk0eRV2o6n3j1uZkWQ"


def partition(start: int, high_watermark: int, stable: int | None = None, *, topic_id: str = ID) -> Partition:
    return Partition("orders", 0, topic_id, Bounds(start, high_watermark, high_watermark if stable is None else stable))


def archived(until: int) -> Manifest:
    topic = ArchivedTopic(topic_id=ID, partition_count=1, partitions={0: ArchivedPartition(0, until)})
    return Manifest(
        name="nightly", cluster_id="c", isolation="read_committed", partition_by=("topic",), plan=3,
        topics={"orders": topic},
    )  # fmt: skip


def plan(manifest: Manifest, *partitions: Partition, committed: bool = True, accepts_gaps: bool = False) -> Plan:
    def tens(stretch: Stretch) -> list[Stretch]:
        topic, number, first, until = stretch
        return [Stretch(topic, number, at, min(at + 10, until)) for at in range(first, until, 10)]

    return make_plan(manifest, partitions, tens, read_committed=committed, accepts_gaps=accepts_gaps)


def test_what_is_new_and_stable_is_planned_in_pieces() -> None:
    found = plan(archived(100), partition(0, 130, 115))

    assert found.number == 4
    assert found.ranges == (Stretch("orders", 0, 100, 110), Stretch("orders", 0, 110, 115))
    assert plan(archived(100), partition(0, 130, 115), committed=False).ranges[-1].until_offset == 130
    assert plan(archived(115), partition(0, 130, 115)).is_empty


def test_a_partition_that_is_new_begins_where_its_log_does() -> None:
    empty = Manifest(name="nightly", cluster_id="c", isolation="read_committed", partition_by=("topic",))

    assert plan(empty, partition(40, 45)).ranges == (Stretch("orders", 0, 40, 45),)


def test_records_deleted_before_they_were_archived_are_loud_and_a_gap_if_that_is_accepted() -> None:
    with pytest.raises(RecordsGone, match=r"orders-0 from 100 to 120; --accept-gap goes on"):
        plan(archived(100), partition(120, 130))

    found = plan(archived(100), partition(120, 125), accepts_gaps=True)

    assert found.ranges == (Stretch("orders", 0, 120, 125),)
    assert [(gap.topic, gap.partition, gap.gap[:2]) for gap in found.gaps] == [("orders", 0, (100, 120))]


def test_a_topic_made_anew_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"topic orders has the id other.* was deleted and made anew"):
        plan(archived(100), partition(0, 130, topic_id="other"))


def test_a_log_that_ends_before_what_is_archived_is_refused() -> None:
    with pytest.raises(LogWentBack, match="orders-0 ends at offset 90, and is archived up to 100"):
        plan(archived(100), partition(0, 90))


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / BOOKS).mkdir()
    assert read_plan(tmp_path) is None
    written = plan(archived(100), partition(105, 130), accepts_gaps=True)

    write_plan(written, tmp_path, aside=tmp_path / "aside")

    assert read_plan(tmp_path) == written


def test_planned_records_that_have_gone_since_are_loud_or_accepted() -> None:
    planned = plan(archived(100), partition(0, 130))
    now = {("orders", 0): partition(115, 130)}

    with pytest.raises(RecordsGone, match="orders-0 from 100 to 110, orders-0 from 110 to 115"):
        list(readable(planned, now, accepts_gaps=False))

    assert [gap.gap[:2] for gap in readable(planned, now, accepts_gaps=True)] == [(100, 110), (110, 115)]
    everything = readable(planned, {("orders", 0): partition(0, 130, topic_id="other")}, accepts_gaps=True)
    assert [gap.gap[:2] for gap in everything] == [(100, 110), (110, 120), (120, 130)]
    assert list(readable(planned, {("orders", 0): partition(100, 130)}, accepts_gaps=False)) == []


def test_a_manifest_is_read_as_it_was_published(tmp_path: Path) -> None:
    (tmp_path / BOOKS).mkdir()
    assert read_manifest(tmp_path) is None
    manifest = archived(100)
    gap = Gap(3, 5, "deleted before it was archived")
    topic = ArchivedTopic(
        topic_id=ID, partition_count=2, configs={"retention.ms": "1"}, partitions={0: ArchivedPartition(0, 9, (gap,))}
    )

    published = publish(
        Manifest(
            name="n", cluster_id="c", isolation="read_committed", partition_by=("topic", "date"),
            topics={"orders": topic}, groups=(),
        ),
        tmp_path, aside=tmp_path / "aside", at=lambda step: None,
    )  # fmt: skip

    assert published.version == 1
    assert read_manifest(tmp_path) == published
    assert publish(manifest, tmp_path, aside=tmp_path / "aside", at=lambda step: None).version == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no manifest"),
        ('{"format": 2}', "is of format 2; this version reads format 1"),
        ("[]", "is no manifest"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / BOOKS).mkdir()
    (tmp_path / MANIFEST).write_text(text)

    with pytest.raises(NoArchive, match=said):
        read_manifest(tmp_path)
