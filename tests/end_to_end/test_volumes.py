"""A volume that can't be written, is full or belongs to another user: one sentence and exit code 1."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.repository import REPOSITORY
from tests.support.clients import connect
from tests.support.small_disk import BrokerOnSmallDisk, NoSmallDisk

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="another broker's way with its volume is not ours to judge",
)

SOMEBODY_ELSE = 54321


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerOnSmallDisk]:
    """A broker that is not started yet, on a volume of its own."""
    try:
        broker = BrokerOnSmallDisk(tmp_path, megabytes=8)
    except NoSmallDisk as reason:
        pytest.skip(str(reason))
    try:
        yield broker
    finally:
        broker.close()


def assert_one_sentence(command: list[str], *words: str) -> None:
    """Run the command to its end: it says nothing but why, and leaves with 1."""
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    sentence = ended.stderr.splitlines()[-1]
    assert sentence.startswith("ottla: ")
    for word in words:
        assert word in sentence, f"{word!r} is missing in: {sentence}"


def make_read_only(broker: BrokerOnSmallDisk) -> None:
    subprocess.run(broker.disk.inside("mount", "-o", "remount,ro", str(broker.data_directory)), check=True)


def test_a_new_volume_that_is_read_only(broker: BrokerOnSmallDisk) -> None:
    make_read_only(broker)

    assert_one_sentence(broker.command(), str(broker.data_directory), "Read-only file system")


def test_a_volume_that_has_become_read_only(broker: BrokerOnSmallDisk) -> None:
    broker.start()
    connect("kafka-python", broker.bootstrap).create_topic("orders")
    broker.stop()
    make_read_only(broker)

    assert_one_sentence(broker.command(), str(broker.data_directory), "Read-only file system")


def test_a_new_volume_that_is_full(broker: BrokerOnSmallDisk) -> None:
    broker.disk.fill_up()

    assert_one_sentence(broker.command(), str(broker.data_directory), "No space left on device")

    broker.disk.make_room()
    broker.start()
    assert broker.stop() == ""


def test_a_volume_that_has_become_full_is_served_as_far_as_that_goes(broker: BrokerOnSmallDisk) -> None:
    broker.start()
    connect("kafka-python", broker.bootstrap).create_topic("orders")
    broker.stop()
    broker.disk.fill_up()

    broker.start()

    assert connect("kafka-python", broker.bootstrap).topics() == {"orders"}


def test_a_volume_without_room_for_the_topics_that_must_be_there(broker: BrokerOnSmallDisk) -> None:
    broker.start()
    broker.stop()
    broker.disk.fill_up()
    # What is free in the metadata log's last block would take a few.
    broker.settings["ottla.topics.at.start"] = ",".join(f"topic-{number:03}" for number in range(200))

    assert_one_sentence(broker.command(), str(broker.data_directory), "No space left on device")


def test_a_volume_of_somebody_else(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o555)
    command = [sys.executable, "-m", "broker", "-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", f"log.dirs={volume}"]
    if os.geteuid() == 0:
        if shutil.which("unshare") is None:
            pytest.skip("root may write everywhere, and there is no unshare to be somebody less")
        os.chown(volume, SOMEBODY_ELSE, SOMEBODY_ELSE)
        command = ["unshare", "--user", "--map-root-user", *command]

    assert_one_sentence(command, str(volume), f"Permission denied for user {os.geteuid()}")
