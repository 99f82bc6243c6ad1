"""`ottla cluster handover`: what the directory for the new controller has, and every case in which there is none."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import Record
from broker.raft.batches import decode_batches
from broker.raft.quorum import Quorum
from broker.raft.snapshots import SnapshotId, check_snapshot, list_snapshots
from broker.tools.cluster import main
from broker.tools.handover_directory import NewController, controller_properties, write_handover
from broker.tools.handover_source import HandoverRefused, HandoverSource, read_source
from config.listeners import Listener
from config.properties import parse_properties
from protocol.records.cluster_metadata import (
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UnknownRecord,
    UserScramCredentialRecord,
)
from protocol.records.control_records import KRaftVersion, SnapshotFooter, SnapshotHeader
from storage.checkpoints import read_meta_properties, read_topic_id
from storage.errors import DiskFull, LogDirFailed, StorageError
from storage.files import FileSystem
from tests.support.broker import InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem, PowerLost
from tests.support.metadata import image_of

METADATA: Final = "__cluster_metadata-0"
OTHER: Final = RegisterBrokerRecord(
    broker_id=7,
    incarnation_id=bytes(range(16)),
    broker_epoch=3,
    end_points=[RegisterBrokerRecord.EndPoint(name="PLAINTEXT", host="b.example", port=9092, security_protocol=0)],
    features=[],
    rack=None,
    fenced=True,
    log_dirs=[bytes(range(16, 32))],
)
CARRIED: Final[Sequence[Record]] = (
    OTHER,
    UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=8192
    ),
    DelegationTokenRecord(
        owner="User:alice", requester="User:alice", renewers=[], issue_timestamp=1, max_timestamp=2,
        expiration_timestamp=2, token_id="token",
    ),
    ClientQuotaRecord(
        entity=[ClientQuotaRecord.Entity(entity_type="user", entity_name="alice")], key="producer_byte_rate",
        value=1000.0, remove=False,
    ),
    AccessControlEntryRecord(
        id=bytes(range(32, 48)), resource_type=2, resource_name="orders", pattern_type=3, principal="User:alice",
        host="*", operation=3, permission_type=3,
    ),
    ProducerIdsRecord(broker_id=1, broker_epoch=8, next_producer_id=3000),
    FeatureLevelRecord(name="group.version", feature_level=1),
    UnknownRecord(key=99, version=3, raw=b"\x01\x63\x03unknown"),
)  # fmt: skip


def append(broker: InProcessBroker, *records: Record) -> None:
    """Append records to the broker's metadata log, as its controller does."""
    durable = []

    async def do() -> None:
        controller = broker.server.components.controller
        assert controller is not None
        controller.append(list(records), lambda: durable.append(True))

    broker.run(do())
    broker.wait_until(lambda: bool(durable))


@pytest.fixture(scope="session")
def stopped_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stopped") / "data"
    with running_broker(directory) as broker:
        broker.create_topic("orders", 3, **{"retention.ms": "1234567"})
        append(broker, *CARRIED)
    return directory


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Path:
    """A copy of the data directory of a broker that was stopped in order."""
    return Path(shutil.copytree(stopped_once, tmp_path / "data"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "controller"


def handover(target: Path, *words: object) -> int:
    return main(["handover", str(target), *map(str, words)])


def refused(capsys: pytest.CaptureFixture[str], target: Path, *words: object) -> str:
    """The reason why there is no hand-over; nothing is left where it would be."""
    before = sorted(target.parent.iterdir())
    assert handover(target, *words) == 1
    answer = capsys.readouterr()
    assert answer.out == ""
    assert sorted(target.parent.iterdir()) == before
    return answer.err.removeprefix("ottla cluster handover: ").rstrip("\n")


def snapshot_of(target: Path) -> tuple[list[Any], list[Record]]:
    """The control records and the records of the one snapshot in the directory."""
    files = FileSystem()
    (snapshot,) = list_snapshots(files, f"{target}/{METADATA}")
    content = memoryview((target / METADATA / snapshot.file_name).read_bytes())
    check_snapshot(content, snapshot.epoch)
    batches = list(decode_batches(content))
    control = [record for batch in batches for record in batch.control_records]
    return control, [record for batch in batches for record in batch.records]


def source_of(directory: Path) -> HandoverSource:
    return read_source(FileSystem(), [str(directory)], str(directory))


# Written --------------------------------------------------------------------------------------------------------------


def test_the_directory_has_all_that_a_controller_starts_with(stopped: Path, target: Path) -> None:
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    source = source_of(stopped)

    assert handover(target, "--data", stopped, "--controller-endpoint", "c.example:9093") == 0

    assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()) == [
        f"{METADATA}/{source.end.file_name}",
        f"{METADATA}/partition.metadata",
        "bootstrap.checkpoint",
        "controller.properties",
        "meta.properties",
    ]
    ours = read_meta_properties(FileSystem(), f"{stopped}/meta.properties")
    theirs = read_meta_properties(FileSystem(), f"{target}/meta.properties")
    assert ours is not None
    assert theirs is not None
    assert (theirs.node_id, theirs.cluster_id) == (200, ours.cluster_id)
    assert theirs.directory_id not in (None, ours.directory_id)
    assert read_topic_id(FileSystem(), f"{target}/{METADATA}/partition.metadata") == bytes(15) + b"\x01"
    assert parse_properties((target / "controller.properties").read_text()) == {
        "process.roles": "controller",
        "node.id": "200",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://c.example:9093",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": "c.example:9093",
        "log.dirs": str(target),
    }
    control, _ = snapshot_of(target)
    header, version, voters, footer = control
    assert header == SnapshotHeader(last_contained_log_timestamp=source.last_timestamp_ms)
    assert version == KRaftVersion(kraft_version=1)
    assert [(voter.voter_id, voter.voter_directory_id) for voter in voters.voters] == [(200, theirs.directory_id)]
    assert [(one.name, one.host, one.port) for one in voters.voters[0].endpoints] == [("CONTROLLER", "c.example", 9093)]
    assert footer == SnapshotFooter()


def test_every_record_is_taken_along_but_the_registration_of_the_nodes_own_controller(
    stopped: Path, target: Path
) -> None:
    image = source_of(stopped).image

    assert handover(target, "--data", stopped) == 0

    _, records = snapshot_of(target)
    assert records == [record for record in image.records() if not isinstance(record, RegisterControllerRecord)]
    assert any(isinstance(record, RegisterControllerRecord) for record in image.records())
    for record in CARRIED:
        assert record in records
    assert any(isinstance(record, TopicRecord) and record.name == "orders" for record in records)
    assert any(isinstance(record, ConfigRecord) and record.value == "1234567" for record in records)
    features = [record for record in records if isinstance(record, FeatureLevelRecord)]
    bootstrap = (target / "bootstrap.checkpoint").read_bytes()
    assert [one for batch in decode_batches(memoryview(bootstrap)) for one in batch.records] == features


def test_the_records_behind_a_snapshot_count(tmp_path: Path, target: Path) -> None:
    settings = {"metadata_log_max_record_bytes_between_snapshots": 700}
    with running_broker(tmp_path / "data", **settings) as broker:
        broker.create_topic("before", 3)
        broker.wait_until(lambda: len(list_snapshots(FileSystem(), str(tmp_path / "data" / METADATA))) > 1)
        broker.create_topic("after")

    assert handover(target, "--data", tmp_path / "data") == 0

    _, records = snapshot_of(target)
    assert {record.name for record in records if isinstance(record, TopicRecord)} == {"before", "after"}
    (snapshot,) = list_snapshots(FileSystem(), f"{target}/{METADATA}")
    assert snapshot > list_snapshots(FileSystem(), str(tmp_path / "data" / METADATA))[-1]


def test_what_to_do_next_is_said_with_the_addresses_of_the_node(
    stopped: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert handover(target, "--data", stopped) == 0

    said = capsys.readouterr().out
    voters = source_of(stopped).quorum.voters
    assert voters is not None
    port = voters.voters[0].endpoints[0].port
    assert f"kafka-server-start.sh {target}/controller.properties\n" in said
    assert "process.roles=broker\n" in said
    assert f"controller.quorum.bootstrap.servers=127.0.0.1:{port}\n" in said
    assert "node.id=1" in said
    assert "Brokers 7 find the controller where this node's own was" in said
    assert "1 topic, metadata.version 33" in said


def test_brokers_that_had_joined_the_node_are_told_a_new_address(
    stopped: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert handover(target, "--data", stopped, "--controller-endpoint", "c.example:9093") == 0

    said = capsys.readouterr().out
    assert "controller.quorum.bootstrap.servers=c.example:9093\n" in said
    assert "Brokers 7: the same controller.quorum.bootstrap.servers, and a restart." in said


def test_settings_name_the_directories_and_what_the_controller_applies(
    stopped: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"log.dirs={stopped}\nnum.partitions=6\nauto.leader.rebalance.enable=false\nlog.retention.hours=3\n"
        "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
    )

    assert handover(target, "-c", properties, "--controller-id", 300, "--controller-endpoint", "[::1]:9193") == 0

    written = parse_properties((target / "controller.properties").read_text())
    assert written["num.partitions"] == "6"
    assert written["auto.leader.rebalance.enable"] == "false"
    assert written["node.id"] == "300"
    assert written["listeners"] == "CONTROLLER://[::1]:9193"
    assert "log.retention.hours" not in written
    assert "broker.session.timeout.ms" not in written, "as in Kafka"
    assert "Take the listener CONTROLLER out of `listeners`" in capsys.readouterr().out


def test_an_empty_directory_is_as_good_as_none(stopped: Path, target: Path) -> None:
    target.mkdir()

    assert handover(target, "--data", stopped) == 0
    assert (target / "meta.properties").exists()


def test_the_controllers_settings_can_be_read_whatever_the_directory_is_called() -> None:
    controller = NewController(200, Listener("CONTROLLER", "c.example", 9093))

    text = controller_properties("/d\\ata/é x", controller, {})

    assert parse_properties(text)["log.dirs"] == "/d\\ata/é x"


# Refused --------------------------------------------------------------------------------------------------------------


def test_a_broker_that_runs_hands_nothing_over(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_broker(tmp_path / "data"):
        assert "/data/.lock" in refused(capsys, target, "--data", tmp_path / "data")


def test_nor_does_one_that_was_not_stopped_in_order(
    stopped: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stopped / ".kafka_cleanshutdown").unlink()

    reason = refused(capsys, target, "--data", stopped)

    assert "the broker was not stopped in order. Start it once more" in reason
    assert "SIGTERM" in reason


def test_what_stands_in_the_way_is_left_alone(stopped: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target.mkdir()
    (target / "mine").write_text("x")
    assert refused(capsys, target, "--data", stopped) == (
        f"{target} is not empty, it has mine: the hand-over is written into a new directory"
    )
    assert (target / "mine").read_text() == "x"
    assert refused(capsys, target / "mine", "--data", stopped) == f"{target}/mine is no directory"


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.chmod(0o600)
    path.write_bytes(content)


DAMAGES: Final[dict[str, tuple[Callable[[Path], object], str]]] = {
    "a batch": (lambda data: flip(data / METADATA / f"{0:020d}.log", 80), "is damaged: found CRC"),
    "the first snapshot": (
        lambda data: flip(data / METADATA / f"{0:020d}-{0:010d}.checkpoint", 70),
        f"{0:020d}-{0:010d}.checkpoint is damaged: ",
    ),
    "no segment": (lambda data: (data / METADATA / f"{0:020d}.log").unlink(), "is damaged: "),
    "no log": (lambda data: shutil.rmtree(data / METADATA), "none has a __cluster_metadata-0, expected one of them"),
    "no identity": (lambda data: (data / "meta.properties").unlink(), "has no meta.properties"),
    "a member": (lambda data: (data / ".ottla_member").touch(), "is a member of a cluster whose controllers"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_metadata_that_cannot_be_read_is_not_handed_over(
    stopped: Path, target: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edit, reason = DAMAGES[damage]
    edit(stopped)

    assert reason in refused(capsys, target, "--data", stopped)


def test_metadata_that_ends_inside_a_transaction_is_not_handed_over(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_broker(tmp_path / "data") as broker:
        append(broker, BeginTransactionRecord(name="a large creation"), TopicRecord(name="t", topic_id=b"t" * 16))

    assert "ends inside a metadata transaction" in refused(capsys, target, "--data", tmp_path / "data")


@pytest.mark.parametrize(("release_version", "is_enough"), [("3.8", False), ("3.9", True)])
def test_metadata_that_cannot_name_its_controllers_is_not_handed_over(
    tmp_path: Path, target: Path, release_version: str, is_enough: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_broker(tmp_path / "data", ottla_release_version=release_version):
        pass

    if is_enough:
        assert handover(target, "--data", tmp_path / "data") == 0
    else:
        reason = refused(capsys, target, "--data", tmp_path / "data")
        assert "has metadata.version 20, expected 21 (3.9-IV0) to 33" in reason
        assert "`ottla features upgrade --release-version 3.9`" in reason


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--controller-id", "1"], "the controller's id is 1, which is this broker's own node.id, expected another"),
        (["--controller-id", "7"], "the controller's id is 7, which broker 7 of the cluster has"),
        (["--controller-id", "-1"], "the controller's id is -1, expected 0 or more"),
        (["--controller-endpoint", "c.example:0"], "the controller's address is c.example:0, expected a port from 1"),
        (["--controller-endpoint", ":9093"], "the controller's address is :9093, expected a host that brokers can"),
        (["--controller-endpoint", "0.0.0.0:9093"], "the controller's address is 0.0.0.0:9093, expected a host"),
        (["--controller-endpoint", "c.example"], "--controller-endpoint is 'c.example', expected host:port"),
        (["--controller-endpoint", "c.example:99999"], "--controller-endpoint is 'c.example:99999', expected host"),
        (["--controller-endpoint", "b.example:9092"], "where clients find broker 7, expected another port"),
    ],
)
def test_a_controller_that_brokers_could_not_follow_is_refused(
    stopped: Path, target: Path, words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reason in refused(capsys, target, "--data", stopped, *words)


def test_directories_that_are_not_of_one_node_are_refused(
    stopped: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert f"{other} has no meta.properties" in refused(capsys, target, "--data", stopped, "--data", other)
    (other / "meta.properties").write_text("version=1\ncluster.id=another\nnode.id=2\n")
    reason = refused(capsys, target, "--data", stopped, "--data", other)
    assert f"{other} belongs to node 2 of cluster another, {stopped} to node 1 of cluster" in reason
    assert refused(capsys, target, "--data", tmp_path / "gone") == f"there is no {tmp_path}/gone"
    assert refused(capsys, target, "--data", other / "meta.properties") == f"{other}/meta.properties is no directory"
    shutil.copytree(stopped / METADATA, other / METADATA)
    reason = refused(capsys, target, "--data", stopped, "--data", other)
    assert f"{stopped} and {other} have a {METADATA}, expected one of them" in reason


def test_settings_that_cannot_be_used_are_refused(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean num.partitions?" in refused(capsys, target, "-o", "num.partitons=3")


# All or nothing -------------------------------------------------------------------------------------------------------


def written(files: FileSystem, target: Path, check_source: Callable[[], None] = lambda: None) -> None:
    """Write a hand-over of a small cluster."""
    image: MetadataImage = image_of(FeatureLevelRecord(name="metadata.version", feature_level=25))
    source = HandoverSource(1, "cluster", image, Quorum(), SnapshotId(9, 2), 1)

    class Numbered:
        def uuid(self) -> bytes:
            return bytes(range(16))

    controller = NewController(200, Listener("CONTROLLER", "c.example", 9093))
    write_handover(
        files, str(target), source, controller,
        settings={}, ids=Numbered(), now_ms=1, date="today", check_source=check_source,
    )  # fmt: skip


def test_after_a_power_failure_at_any_moment_the_directory_is_complete_or_absent(tmp_path: Path) -> None:
    written(FileSystem(), tmp_path / "whole")
    complete = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*"))
    for moment in range(200):
        files = FaultyFileSystem()
        files.disk.changes_left = moment
        target = tmp_path / f"{moment}" / "controller"
        try:
            written(files, target)
        except PowerLost:
            if target.exists():
                assert sorted(path.relative_to(target) for path in target.rglob("*")) == complete
            # Another attempt finds the rest of this one, and nothing in its way.
            shutil.rmtree(target, ignore_errors=True)
            written(FileSystem(), target)
            assert sorted(path.name for path in target.parent.iterdir()) == ["controller"]
        else:
            assert moment > 20
            return
    raise AssertionError("the hand-over has never been written")


@pytest.mark.parametrize("operation", ["make", "write", "fsync", "rename"])
def test_a_disk_that_fails_leaves_nothing(tmp_path: Path, operation: str) -> None:
    target = tmp_path / "there" / "controller"
    for after in range(100):
        files = FaultyFileSystem()
        files.fail(operation, after=after)
        try:
            written(files, target)
        except (LogDirFailed, DiskFull):
            left = [path.name for path in target.parent.iterdir()] if target.parent.exists() else []
            # Only the sync behind the last rename comes too late: the directory is complete then.
            assert left in ([], ["controller"])
            shutil.rmtree(target, ignore_errors=True)
        else:
            assert after > 0
            return
    raise AssertionError("the hand-over has never been written")


def test_a_broker_that_starts_meanwhile_makes_the_hand_over_void(tmp_path: Path) -> None:
    def started() -> None:
        raise StorageError("a broker works in it")

    with pytest.raises(StorageError, match="works in it"):
        written(FileSystem(), tmp_path / "controller", started)
    assert os.listdir(tmp_path) == []


def test_voters_other_than_the_node_have_a_say(stopped: Path, target: Path) -> None:
    properties = (stopped / "meta.properties").read_text()
    (stopped / "meta.properties").write_text(properties.replace("node.id=1", "node.id=2"))

    with pytest.raises(HandoverRefused, match=r"belongs to the voters 1, expected node 2 alone"):
        source_of(stopped)
