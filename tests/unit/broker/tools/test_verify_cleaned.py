"""`ottla verify` on a directory in which a broker's cleaner has been at work."""

from pathlib import Path

from storage.checkpoints import CLEANER_OFFSETS, read_offset_checkpoint, write_offset_checkpoint
from storage.files import FileSystem
from storage.topic_partition import TopicPartition
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.requests import produce_request
from tests.unit.broker.tools.conftest import Tool

PRICES = TopicPartition("prices", 0)


def write(broker: InProcessBroker) -> None:
    """Two prices of the same thing, on disk in a segment that can be cleaned."""
    records = [record(b"a price", key=b"oil"), record(b"a later price", key=b"oil")]
    broker.ask(produce_request("prices", produced(records)), 12)
    log, now_ms = broker.log("prices"), broker.clock.now_ms()
    log.roll(now_ms)
    log.flush(now_ms)


def test_a_cleaned_directory_is_whole_as_long_as_the_cleaner_s_checkpoint_is_true(
    tmp_path: Path, run_verify: Tool
) -> None:
    directory = tmp_path / "data"
    with running_broker(directory, log_cleaner_backoff_ms=15_000) as broker:
        broker.create_topic("prices", cleanup_policy="compact", min_cleanable_dirty_ratio=0.9)
        write(broker)
        broker.advance(15_000)
        broker.wait_until(lambda: broker.server.components.log_cleaner.stats.rounds == 1)
        write(broker)
    files, checkpoint = FileSystem(), f"{directory}/{CLEANER_OFFSETS}"
    offsets = read_offset_checkpoint(files, checkpoint)
    assert offsets[PRICES] == 2

    code, answer = run_verify(directory)
    assert (code, answer[:-1]) == (0, [])
    assert answer[-1]["keys_left_out"] == 0

    write_offset_checkpoint(files, checkpoint, {**offsets, PRICES: 4})
    code, (damage, summary) = run_verify(directory)
    assert (code, summary["damage"]) == (1, 1)
    assert damage["path"] == f"{directory}/prices-0/{2:020}.log"
    assert damage["found"].startswith("2 records with the key of an earlier record, the first at offset 2 ")
