"""The levels of a fresh directory: what Kafka's format tool writes, which Kafka opens it, and how tools show them."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.image.records import Record
from broker.raft.batches import decode_batches
from broker.raft.formatting import format_directories
from broker.runtime.clock import SystemIds
from broker.tools import features
from config.listeners import Listener
from config.release_versions import NEWEST, ReleaseVersion, read_release_version
from dev.broker_process import BrokerProcess
from dev.kafka_jars import NEWEST as NEWEST_KAFKA
from dev.kafka_jars import OLDEST
from dev.waiting import until
from protocol.records.control_records import KRaftVoters, SnapshotHeader
from storage.checkpoints import MetaProperties, read_meta_properties
from storage.files import FileSystem
from tests.interop import programs
from tests.interop.conftest import installed
from tests.interop.directories import SharedDirectory, Visitor
from tests.interop.java_tools import JavaTools

pytestmark = pytest.mark.timeout(400)  # several starts of Java, on whatever machine

SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
CONTROLLER = Listener(name="CONTROLLER", host="127.0.0.1", port=9093)
SETTINGS = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9093
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}
"""


def formatted_by_kafka(directory: Path, *release_version: str) -> None:
    settings = directory.with_suffix(".properties")
    settings.write_text(SETTINGS.format(directory=directory))
    command = programs.java(installed(lambda: programs.kafka_libraries(NEWEST_KAFKA)))
    words = ["--standalone", "-t", "b3R0bGEtdGVzdC1jbHVzdA", "-c", str(settings), *release_version]
    programs.run([*command, "kafka.tools.StorageTool", "format", *words], timeout_s=120).done()


def formatted_by_us(directory: Path, version: ReleaseVersion) -> None:
    format_directories(
        FileSystem(),
        [str(directory)],
        metadata_directory=str(directory),
        node_id=1,
        cluster_id="b3R0bGEtdGVzdC1jbHVzdA",
        controller_endpoint=CONTROLLER,
        ids=SystemIds(lambda count: bytes(count)),
        now_ms=1,
        date="today",
        release_version=version,
    )


def files_of(directory: Path) -> dict[str, tuple[int, int]]:
    """Every file by name, with its size and who may read it. The date of `meta.properties` may be longer."""
    return {
        str(path.relative_to(directory)): (
            0 if path.name == "meta.properties" else path.stat().st_size,
            stat.S_IMODE(path.stat().st_mode),
        )
        for path in directory.rglob("*")
        if path.is_file()
    }


def records_of(directory: Path) -> list[tuple[int, list[Any], list[Record]]]:
    """The batches of the first snapshot, without ids and times that differ from run to run."""
    found = []
    for batch in decode_batches(memoryview((directory / SNAPSHOT).read_bytes())):
        control = list(batch.control_records)
        for one in control:
            if isinstance(one, SnapshotHeader):
                one.last_contained_log_timestamp = 0
            if isinstance(one, KRaftVoters):
                for voter in one.voters:
                    voter.voter_directory_id = b""
        found.append((batch.base_offset, control, list(batch.records)))
    return found


def meta_properties(directory: Path) -> MetaProperties:
    found = read_meta_properties(FileSystem(), str(directory / "meta.properties"))
    assert found is not None
    return found._replace(directory_id=None)


@pytest.mark.parametrize("release_version", [None, "4.3", "4.0-IV1", "3.3"])
def test_a_fresh_directory_has_the_files_and_records_of_kafkas_format_tool(
    release_version: str | None, tmp_path: Path
) -> None:
    kafkas, ours = tmp_path / "kafkas", tmp_path / "ours"

    formatted_by_kafka(kafkas, *(("--release-version", release_version) if release_version else ()))
    formatted_by_us(ours, read_release_version(release_version or "") or NEWEST)

    assert files_of(ours) == files_of(kafkas)
    assert records_of(ours) == records_of(kafkas)
    assert meta_properties(ours) == meta_properties(kafkas)


@pytest.mark.parametrize("kafka_version", [OLDEST])
def test_the_oldest_kafka_opens_a_directory_with_its_levels_and_gives_it_back(shared: SharedDirectory) -> None:
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as visitor:
        visitor.create("orders")
        levels, before = visitor.features(), visitor.picture()
    shared.ottla.stop()

    shared.kafka.start()
    with Visitor(shared.kafka.bootstrap) as visitor:
        assert (visitor.features(), visitor.picture()) == (levels, before)
        visitor.create("letters")
        after = visitor.picture()
    shared.kafka.stop()

    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as visitor:
        assert (visitor.features(), visitor.picture()) == (levels, after)


@pytest.mark.parametrize("kafka_version", [NEWEST_KAFKA])
def test_ottla_features_shows_and_raises_the_levels_of_either_broker_as_kafkas_tool_does(
    shared: SharedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    def described(broker: BrokerProcess) -> list[str]:
        assert features.main(["--bootstrap-server", broker.bootstrap]) == features.DONE
        return [line.partition("Epoch:")[0] for line in capsys.readouterr().out.splitlines()]

    def described_by_kafka(broker: BrokerProcess) -> list[str]:
        lines = JavaTools(installed(programs.java), broker.bootstrap).lines("kafka-features", "describe")
        return [line.partition("Epoch:")[0] for line in lines]

    upgrade = ("upgrade", "--release-version", NEWEST.release)
    shared.kafka.release_version = "4.0"
    shared.kafka.start()
    older = described(shared.kafka)
    assert older == described_by_kafka(shared.kafka)

    assert features.main([*upgrade, "--bootstrap-server", shared.kafka.bootstrap]) == features.DONE
    raised = capsys.readouterr().out.splitlines()
    # The broker hears of it after the controller has answered.
    until(lambda: described(shared.kafka) != older, "that the broker knows the levels")
    newest = described(shared.kafka)
    shared.kafka.stop()

    shared.ottla.start()
    assert described(shared.ottla) == described_by_kafka(shared.ottla) == newest
    repeated = JavaTools(installed(programs.java), shared.ottla.bootstrap).lines("kafka-features", *upgrade)
    assert repeated == raised
