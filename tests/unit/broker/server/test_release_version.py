"""`ottla.release.version`: the feature levels of a new directory, a check of an existing one, and what a start says."""

import logging
from pathlib import Path

import pytest

from broker.raft.formatting import format_directories
from broker.runtime.clock import SystemIds
from broker.server.broker_server import CannotStart
from config.listeners import Listener
from config.release_versions import NEWEST, RELEASE_VERSIONS, ReleaseVersion, read_release_version
from protocol.errors import ErrorCode as E
from protocol.messages.features import UpdateFeaturesRequest
from storage.files import FileSystem
from tests.support.broker import InProcessBroker, running_broker


def levels(directory: Path, **settings: object) -> dict[str, int]:
    """The levels of a broker once it has started on ``directory``, and has made a topic."""
    with running_broker(directory, **settings) as broker:
        broker.create_topic(f"topic-{len(broker.topics())}")
        return dict(broker.server.metadata.image.features.levels)


@pytest.mark.parametrize("version", RELEASE_VERSIONS.values(), ids=lambda version: version.name)
def test_a_new_directory_gets_the_levels_that_are_wanted_and_keeps_them(
    tmp_path: Path, version: ReleaseVersion
) -> None:
    assert levels(tmp_path, ottla_release_version=version.name) == version.levels
    assert levels(tmp_path) == version.levels
    assert levels(tmp_path, ottla_release_version=version.name) == version.levels


@pytest.mark.parametrize("was_started", [True, False])
def test_a_directory_with_other_levels_is_refused_and_stays_as_it_is(tmp_path: Path, was_started: bool) -> None:
    if was_started:
        levels(tmp_path, ottla_release_version="4.3")
    else:
        formatted(tmp_path, "4.3")
    before = files_of(tmp_path)

    with pytest.raises(CannotStart) as refused:
        InProcessBroker(tmp_path, ottla_release_version="4.4")

    assert before.items() <= files_of(tmp_path).items(), "the clean-shutdown marker among them"

    assert str(refused.value) == (
        f"{tmp_path} has other feature levels than ottla.release.version 4.4-IV2: metadata.version 30 instead of 33, "
        "share.version 1 instead of 2; the setting is for new directories, and `ottla features` is for those of a "
        "running node"
    )
    older = read_release_version("4.3")
    assert older is not None
    assert levels(tmp_path) == older.levels


def test_a_level_that_has_log_directories_is_told_of_them(tmp_path: Path) -> None:
    with running_broker(tmp_path, ottla_release_version="3.6") as broker:
        before = broker.server.metadata.image.cluster.brokers[1]
        assert before.log_dirs == []
        update = UpdateFeaturesRequest.FeatureUpdate(feature="metadata.version", max_version_level=25, upgrade_type=1)
        assert broker.ask(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code == E.NONE
        broker.wait_until(lambda: bool(broker.server.metadata.image.cluster.brokers[1].log_dirs))

        after = broker.server.metadata.image.cluster.brokers[1]
        assert after.log_dirs == [*broker.server.log_dirs.by_id]
        assert (after.broker_epoch, after.fenced) == (before.broker_epoch, False)
        broker.create_topic("orders")
        broker.produce("orders", b"value")


def files_of(directory: Path) -> dict[Path, bytes]:
    """The files of a directory with what they contain."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def formatted(directory: Path, release_version: str) -> None:
    """Format a directory that no broker starts on."""
    format_directories(
        FileSystem(),
        [str(directory)],
        metadata_directory=str(directory),
        node_id=1,
        cluster_id=None,
        controller_endpoint=Listener("CONTROLLER", "127.0.0.1", 9093),
        ids=SystemIds(lambda count: bytes(range(count))),
        now_ms=0,
        date="today",
        release_version=read_release_version(release_version) or NEWEST,
    )


def test_the_first_start_says_which_kafka_opens_the_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    levels(tmp_path / "newest")
    levels(tmp_path / "older", ottla_release_version="4.2")
    levels(tmp_path / "newest")

    said = [line.partition(";")[0] for line in caplog.messages if "open the directory" in line]
    assert said == [
        "metadata.version 33 (4.4-IV2), which cannot be lowered: Kafka 4.4.0 and later open the directory",
        "metadata.version 29 (4.2-IV1): Kafka 4.2.0 and later open the directory",
    ]


def test_each_start_of_an_older_directory_says_which_features_are_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    levels(tmp_path / "older", ottla_release_version="4.0")
    levels(tmp_path / "older")
    levels(tmp_path / "newest")

    said = [line for line in caplog.messages if line.startswith("features that are off")]
    assert said == 2 * [
        "features that are off or at an older level: metadata.version 25 of 33, eligible.leader.replicas.version 0 of "
        "1, share.version 0 of 2, streams.version 0 of 1; `ottla features upgrade --release-version 4.4` raises them, "
        "and then no Kafka before 4.4.0 opens the directory"
    ]
