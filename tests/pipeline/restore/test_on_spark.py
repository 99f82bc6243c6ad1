"""`restore --master` and `mirror --master`: done by Spark's workers, with the same result."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from broker.tools import verify
from config.log_config import LogConfig
from dev.broker_process import BrokerProcess
from dev.repository import REPOSITORY
from dev.spark_home import linked_home
from dev.waiting import until
from pipeline.archive.archive import Archive
from pipeline.archive.run import nothing
from pipeline.errors import PipelineError
from pipeline.restore.archived import Archived
from pipeline.restore.plan import Wishes, make_plan
from pipeline.restore.segments import restore_segments
from pipeline.restore.selection import Offsets
from pipeline.restore.staging import Part, WantedLog, write_part
from pipeline.session import workers
from pipeline.work import GetWorkers, in_this_process
from storage.files import FileSystem
from storage.topic_partition import TopicPartition
from tests.pipeline.restore.archiving import archive, names_in, stored
from tests.pipeline.restore.test_kills import values_by_partition
from tests.pipeline.restore.test_mirror import arrived, read_from
from tests.pipeline.restore.test_segments import records
from tests.support.clients import Committed, Place, Record, connect
from tests.support.pipeline_commands import JAVAS_OWN, Answer, commands_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = ("--master", "local[2]")
TOPIC = "several"
PARTITIONS = (0, 1, 2, 3)
A_PARTITION = 4_000

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(400)]


@pytest.fixture
def on_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Answer]:
    """Runs a command on the Spark of the tests."""

    def run(command: str, *words: object) -> Answer:
        return commands_on(spark, monkeypatch, capsys, command, "pipeline.session")(*words, *MASTER)

    return run


@pytest.fixture(scope="module")
def dest(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a topic whose partitions have several segments, and where a group stood."""
    client = connect("confluent-kafka", broker.bootstrap)
    configs = {"segment.bytes": str(1 << 20), "retention.ms": "-1"}
    client.create_topic(TOPIC, partitions=len(PARTITIONS), configs=configs)
    for partition in PARTITIONS:
        client.produce(TOPIC, [value(number, partition) for number in range(A_PARTITION)], codec="zstd")
    client.commit("reader", {Place(TOPIC, 1): Committed(700)})
    place = tmp_path_factory.mktemp("archive") / "archive"
    archive(broker.data_directory, place, TOPIC, bootstrap=broker.bootstrap)
    return place


def value(number: int, partition: int) -> Record:
    """A record that no codec makes much smaller."""
    return Record(value=b"%d " % number + os.urandom(1_000), partition=partition)


def files_of(data: Path) -> dict[str, bytes]:
    """Everything in the topic's directories, but for its id and what tells the time."""
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in data.glob(f"{TOPIC}-?/*")
        if path.name != "partition.metadata"
    }


@pytest.mark.parametrize("part_bytes", [1, 2 << 20, 1 << 30])
def test_segments_are_the_same_files_whoever_makes_them(
    dest: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part_bytes: int
) -> None:
    """A segment a task, some, or a partition."""
    monkeypatch.setattr("pipeline.session.spark_session", lambda *_: nullcontext(spark))
    options = argparse.Namespace(master="local[2]", spark_conf=[])

    restore_in_parts(dest, tmp_path / "here", in_this_process, 1 << 40)
    restore_in_parts(dest, tmp_path / "there", lambda: workers(options, "restore"), part_bytes)

    expected = files_of(tmp_path / "here")
    assert sum(name.endswith(".log") for name in expected) > 2 * len(PARTITIONS)
    assert files_of(tmp_path / "there") == expected
    assert verify.main([str(tmp_path / "there")]) == verify.WHOLE


def restore_in_parts(dest: Path, target: Path, get_workers: GetWorkers, part_bytes: int) -> None:
    archived = Archived(Archive.open(dest))
    restore_segments(
        archived,
        str(target),
        wishes="all",
        make_plan=lambda: make_plan(archived.manifest, Wishes(), archived.first_offset_at),
        workers=get_workers,
        part_bytes=part_bytes,
    )


def test_configs_groups_and_refusals_are_the_same(
    dest: Path, on_spark: Callable[..., Answer], tmp_path: Path, second: BrokerProcess
) -> None:
    done = on_spark("restore", "--archive", dest, "--target-dir", second.data_directory)
    assert (done.code, done.err) == (0, "")

    refused = on_spark("restore", "--archive", dest, "--target-dir", second.data_directory)
    assert refused.code == 2
    assert f"has topics of these names already: {TOPIC}" in refused.err
    again = connect("confluent-kafka", second.start().bootstrap)
    assert again.committed("reader", [Place(TOPIC, 1)]) == {Place(TOPIC, 1): Committed(700)}
    assert again.topic_configs(TOPIC)["segment.bytes"] == str(1 << 20)


def test_an_archive_whose_file_is_gone_leaves_nothing_behind(
    dest: Path, on_spark: Callable[..., Answer], tmp_path: Path
) -> None:
    shutil.copytree(dest, tmp_path / "archive")
    lost = max((tmp_path / "archive").rglob("*.parquet"))
    lost.unlink()

    refused = on_spark("restore", "--archive", tmp_path / "archive", "--target-dir", tmp_path / "target")

    assert refused.code == 1
    assert lost.name in refused.err
    assert refused.err.count("\n") == 1
    assert names_in(tmp_path / "target") == []


def test_a_worker_that_does_not_see_the_directory(dest: Path, tmp_path: Path) -> None:
    archived = Archived(Archive.open(dest))
    log = WantedLog(TOPIC, TopicPartition(TOPIC, 0), Offsets(0, A_PARTITION), LogConfig(), str(tmp_path / "elsewhere"))
    with pytest.raises(PipelineError, match="Spark's workers must see the target directory under the same path"):
        write_part(Part(log, log.offsets, 0), archived, FileSystem(), nothing)


def test_a_restore_that_is_killed_in_the_middle_goes_on(dest: Path, broker: BrokerProcess, tmp_path: Path) -> None:
    """What had been written by then is not written again."""
    target = tmp_path / "target"
    words = ("restore", "--archive", str(dest), "--target-dir", str(target), *MASTER)

    with pipeline(*words) as process:
        until(lambda: parts_in(target) != [], "a part of a log is there")
        process.kill()
    written = {path.stat().st_ino for part in parts_in(target) for path in part.iterdir()}
    assert not list(target.glob(f"{TOPIC}-?"))
    assert run(*words) == (0, "")

    placed = {path.stat().st_ino for path in target.glob(f"{TOPIC}-?/*.log")}
    assert written
    assert written <= placed
    assert [name for name in names_in(target) if "stray" in name or "restore" in name] == []
    assert verify.main([str(target)]) == verify.WHOLE
    for partition in PARTITIONS:
        assert stored(target, TOPIC, partition) == stored(broker.data_directory, TOPIC, partition)


def parts_in(target: Path) -> list[Path]:
    """The parts of logs that are there whole."""
    return [path for path in target.glob("*-stray/*-*") if path.is_dir() and "." not in path.name]


def test_a_cluster_of_two_workers(dest: Path, broker: BrokerProcess, tmp_path: Path) -> None:
    home = linked_home(tmp_path / "spark", Path(pyspark.__file__).parent)
    target = tmp_path / "target"

    words = ("--archive", str(dest), "--target-dir", str(target), "--master", "local-cluster[2,1,1024]")
    assert run("restore", *words, SPARK_HOME=str(home)) == (0, "")

    for partition in PARTITIONS:
        assert stored(target, TOPIC, partition) == stored(broker.data_directory, TOPIC, partition)


def test_a_spark_that_does_not_start_leaves_nothing_behind(dest: Path, tmp_path: Path) -> None:
    code, said = run("restore", "--archive", str(dest), "--target-dir", str(tmp_path / "target"), "--master", "lokal")

    assert code == 2
    assert "Spark did not start with master lokal" in said
    assert not (tmp_path / "target").exists()


def test_without_a_master_no_java_is_needed(dest: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    words = ("--archive", str(dest), "--target-dir", str(tmp_path / "target"))

    assert run("restore", *words, PATH=str(tmp_path / "bin"), JAVA_HOME="") == (0, "")
    code, said = run("restore", *words, *MASTER, PATH=str(tmp_path / "bin"), JAVA_HOME="")
    assert code == 2
    assert "Spark needs Java" in said
    code, said = run("restore", *words, "--spark-conf", "spark.driver.memory=1g")
    assert code == 2
    assert "does nothing here without --master" in said


def test_a_production_that_is_killed_goes_on_partition_by_partition(
    dest: Path, second: BrokerProcess, tmp_path: Path
) -> None:
    there = connect("confluent-kafka", second.start().bootstrap)
    words = ("restore", "--archive", str(dest), "--mode", "produce", "--bootstrap", second.bootstrap)
    words = (*words, "--offset-map", str(tmp_path / "offsets.json"), *MASTER)

    with pipeline(*words) as process:
        until(lambda: arrived(there, TOPIC) > 0, "something has arrived")
        process.kill()
    assert run(*words) == (0, "")

    numbers = {
        partition: [int((value or b"").split(b" ")[0]) for value in values]
        for partition, values in values_by_partition(there, TOPIC).items()
    }
    assert numbers == {partition: list(range(A_PARTITION)) for partition in PARTITIONS}
    assert [one["records"] for one in json.loads((tmp_path / "offsets.json").read_bytes())] == [A_PARTITION] * 4
    assert there.committed("reader", [Place(TOPIC, 1)]) == {Place(TOPIC, 1): Committed(700)}


def test_a_mirror_copies_what_is_new_of_each_partition(
    own_broker: BrokerProcess, second: BrokerProcess, on_spark: Callable[..., Answer], tmp_path: Path
) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t", partitions=3, configs={"retention.ms": "-1"})
    words = ("--data-dir", own_broker.data_directory, "--bootstrap", own_broker.bootstrap)
    words = (*words, "--to", second.start().bootstrap, "--checkpoint", tmp_path / "checkpoint")

    said = []
    for count in (100, 10, 0):
        if count:
            for partition in (0, 2):
                client.produce("t", records(count, first=partition * 100, partition=partition))
        said.append(on_spark("mirror", *words).out)

    assert [line.split()[1] for line in said] == ["200", "20", "0"]
    assert read_from(second, "t") == read_from(own_broker, "t")


def pipeline(*words: str, **environment: str) -> subprocess.Popen[str]:
    """`ottla pipeline` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline", *words], cwd=REPOSITORY, env={**os.environ, **environment},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(*words: str, **environment: str) -> tuple[int, str]:
    """The same until it ends: its exit code, and what it says on stderr, Java's own warning aside."""
    with pipeline(*words, **environment) as process:
        _, said = process.communicate(timeout=200)
    return process.returncode, said.replace(f"{JAVAS_OWN}\n", "")
