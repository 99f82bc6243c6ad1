"""Metrics of the log cleaner: how dirty logs are, rounds and what they write, and logs that cannot be cleaned."""

from pathlib import Path

import pytest

from broker.logs import cleaner_process
from broker.logs.cleaner_stats import CleanerStats, LastRound
from protocol.errors import ErrorCode
from protocol.messages.topics import DeleteTopicsRequest
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.metrics import now, scrape, shown, up
from tests.support.requests import produce_request

CLEANER = "kafka_log_logcleaner"
MANAGER = "kafka_log_logcleanermanager"
OURS = "ottla_log_cleaner"
DEAD = f"{CLEANER}_deadthreadcount"
DIRTY = f"{MANAGER}_max_dirty_percent"
SINCE = f"{MANAGER}_time_since_last_run_ms"

BACKOFF_MS = 15_000
COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.5, "segment_bytes": 1_048_576}


def rounds(outcome: str) -> str:
    return f'{OURS}_rounds_total{{outcome="{outcome}"}}'


def stats(broker: InProcessBroker) -> CleanerStats:
    found: CleanerStats = broker.server.components.log_cleaner.stats
    return found


def write(broker: InProcessBroker, *keys: bytes, topic: str = "prices") -> None:
    """A batch for each key, on disk in a segment that is full, so that all can be cleaned."""
    for key in keys:
        answer = broker.ask(produce_request(topic, produced([record(b"a price", key=key)])), 12)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    log, now_ms = broker.log(topic), broker.clock.now_ms()
    log.roll(now_ms)
    log.flush(now_ms)


def clean(broker: InProcessBroker, until: int = 1) -> None:
    """Let the cleaners look again, until ``until`` rounds have come to an end, whatever end."""
    found = stats(broker)
    broker.advance(BACKOFF_MS)
    broker.wait_until(lambda: found.rounds + found.failed_rounds + found.deaths == until)
    broker.settle()


def directory(broker: InProcessBroker, name: str) -> str:
    return f'{MANAGER}_{name}{{logDirectory="{broker.directory}"}}'


def damage(broker: InProcessBroker) -> None:
    """Flip a bit in the first segment of the log."""
    path = Path(broker.log("prices").directory) / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)


def die_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cleaner's process end at once, without an answer."""
    monkeypatch.setattr(cleaner_process, "CHILD", "keyword")


# Rounds ---------------------------------------------------------------------------------------------------------------


def test_a_round_and_what_it_read_and_kept_are_counted(broker: InProcessBroker) -> None:
    broker.create_topic("prices", **COMPACTED)
    write(broker, b"oil", b"oil", b"oil", b"gold")
    bytes_read = broker.log("prices").size
    counted = {
        rounds("completed"): up(1),
        f"{OURS}_records_read_total": up(4),
        f"{OURS}_records_written_total": up(2),
        f"{OURS}_bytes_read_total": up(bytes_read),
        f"{OURS}_segments_replaced_total": up(1),
    }
    with shown(broker, counted):
        clean(broker)
    page, kept = scrape(broker), broker.log("prices").size
    assert page[f"{OURS}_bytes_written_total"] == kept < bytes_read
    assert page["kafka_utils_throttler_cleaner_io_count"] == 2 * bytes_read + kept, "keys are read first, then records"
    assert page[f"{CLEANER}_cleaner_recopy_percent"] == 100 * kept // bytes_read


def test_the_last_round_of_the_slowest_cleaner_is_told(broker: InProcessBroker) -> None:
    last_rounds = stats(broker).last_rounds
    page = scrape(broker)
    assert page[f"{CLEANER}_max_clean_time_secs"] == page[f"{CLEANER}_max_buffer_utilization_percent"] == 0
    last_rounds[0] = LastRound(3.9, 1_000, 700, 0.129)
    last_rounds[1] = LastRound(1.2, 1_000, 100, 0.7)
    page = scrape(broker)
    assert page[f"{CLEANER}_max_clean_time_secs"] == 3
    assert page[f"{CLEANER}_max_buffer_utilization_percent"] == 70
    assert page[f"{CLEANER}_cleaner_recopy_percent"] == 40


# What is dirty --------------------------------------------------------------------------------------------------------


def test_the_dirtiest_log_is_told_of_when_a_cleaner_has_looked(broker: InProcessBroker) -> None:
    broker.create_topic("prices", **{**COMPACTED, "min_cleanable_dirty_ratio": 1})
    write(broker, b"oil", b"oil")
    with shown(broker, {DIRTY: now(100)}):
        broker.advance(BACKOFF_MS)


def test_for_how_long_a_log_is_overdue_is_told(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("prices", **COMPACTED, max_compaction_lag_ms=5_000)
    write(broker, b"oil")
    die_in_rounds(monkeypatch)
    clean(broker)
    assert scrape(broker)[f"{CLEANER}_max_compaction_delay_secs"] == (BACKOFF_MS - 5_000) // 1000


def test_since_when_no_cleaner_has_looked_is_told(broker: InProcessBroker) -> None:
    broker.advance(BACKOFF_MS)
    assert scrape(broker)[SINCE] == 0
    with shown(broker, {SINCE: now(7_000)}):
        broker.advance(7_000)
    with shown(broker, {SINCE: now(0)}):
        broker.advance(BACKOFF_MS - 7_000)


# What goes wrong ------------------------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_cleaned_is_told_of_with_its_bytes_until_it_is_deleted(broker: InProcessBroker) -> None:
    broker.create_topic("prices", **COMPACTED)
    write(broker, b"oil", b"oil")
    damage(broker)
    left = broker.log("prices").size
    partitions = directory(broker, "uncleanable_partitions_count")
    waiting = directory(broker, "uncleanable_bytes")
    with shown(broker, {partitions: now(1), waiting: now(left), rounds("failed"): up(1)}):
        clean(broker)
    with shown(broker, {partitions: now(0), waiting: now(0)}):
        broker.ask(DeleteTopicsRequest(topic_names=["prices"], timeout_ms=60_000), 4)
        broker.settle()


def test_a_cleaner_that_has_died_is_told_of_until_it_completes_a_round(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("prices", **COMPACTED)
    write(broker, b"oil", b"oil")
    with monkeypatch.context() as patch:
        die_in_rounds(patch)
        with shown(broker, {DEAD: now(1), rounds("died"): up(1)}):
            clean(broker)
        with shown(broker, {rounds("died"): up(1)}):
            clean(broker, until=2)
        assert scrape(broker)[DEAD] == 1, "it is one cleaner, however often it dies"
    with shown(broker, {DEAD: now(0), rounds("completed"): up(1)}):
        clean(broker, until=3)


def test_without_a_cleaner_there_is_nothing_to_tell(tmp_path: Path) -> None:
    with running_broker(tmp_path, log_cleaner_enable="false") as broker:
        names = scrape(broker).names()
    assert not [name for name in names if "cleaner" in name]
