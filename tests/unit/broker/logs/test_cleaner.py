"""The log cleaner in a broker: it chooses, has logs cleaned by a process, and survives what goes wrong in it."""

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.topics import DeleteTopicsRequest
from storage.batch.records import iterate_records
from storage.segment_swap import SegmentSwap
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.requests import fetch_request, produce_request

BACKOFF_MS = 15_000
TOPIC, BROKER, SET = 2, 4, 0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with running_broker(tmp_path / "data", log_segment_delete_delay_ms=0) as broker:
        yield broker


def fill(broker: InProcessBroker, topic: str, segments: int = 3) -> None:
    """A compacted topic with so many closed segments on disk, in each of which the same keys are written."""
    broker.create_topic(topic, cleanup_policy="compact")
    for number in range(segments):
        batch = produced([record(b"%d" % number, key=key, timestamp=broker.clock.now_ms()) for key in (b"a", b"b")])
        answer = broker.ask(produce_request(topic, batch), 12)
        assert answer.responses[0].partition_responses[0].error_code == E.NONE
        broker.log(topic).roll(broker.clock.now_ms())
    log = broker.log(topic)
    log.flush(broker.clock.now_ms())
    # The broker's own flushes of the first segments may still run: a round would end where they do.
    broker.wait_until(lambda: log.recovery_point == log.log_end_offset)


def values(broker: InProcessBroker, topic: str) -> list[bytes | None]:
    return [one.value for _, data in broker.log(topic).batches() for one in iterate_records(data)]


def look(broker: InProcessBroker) -> None:
    """Let the cleaner look for dirty logs again, when it rests."""
    cleaner = broker.server.components.log_cleaner
    looked_ms = cleaner.stats.looked_ms

    def has_looked() -> bool:
        if cleaner.stats.looked_ms == looked_ms:
            broker.advance(BACKOFF_MS)  # it may have begun to rest only now
        return cleaner.stats.looked_ms > looked_ms

    broker.wait_until(has_looked)


def rest_until(broker: InProcessBroker, condition: Callable[[], bool]) -> None:
    """Let the cleaner rest and look again, as often as it needs."""

    def holds() -> bool:
        if condition():
            return True
        broker.advance(BACKOFF_MS)
        return condition()

    broker.wait_until(holds)


def alter_broker(broker: InProcessBroker, **configs: object) -> None:
    alter(broker, BROKER, "", **configs)


def alter(broker: InProcessBroker, resource_type: int, name: str, **configs: object) -> None:
    changes = [
        IncrementalAlterConfigsRequest.Resource.Config(
            name=key.replace("_", "."), config_operation=SET, value=str(value)
        )
        for key, value in configs.items()
    ]
    resource = IncrementalAlterConfigsRequest.Resource(resource_type=resource_type, resource_name=name, configs=changes)
    answer = broker.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == E.NONE, answer


def delete(broker: InProcessBroker, topic: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=topic, topic_id=bytes(16))], timeout_ms=1000)
    assert broker.ask(request, 6).responses[0].error_code == E.NONE


def test_a_dirty_log_is_cleaned_and_readers_get_what_is_left(broker: InProcessBroker) -> None:
    fill(broker, "orders")
    cleaner = broker.server.components.log_cleaner
    rest_until(broker, lambda: cleaner.stats.rounds == 1)
    assert values(broker, "orders") == [b"2", b"2"]
    assert (cleaner.stats.records_read, cleaner.stats.records_written, cleaner.stats.segments_replaced) == (6, 2, 3)
    (answer,) = broker.ask(fetch_request("orders", offset=1), 12).responses[0].partitions
    assert [one.offset for one in iterate_records(answer.records)] == [4, 5], "an offset that is gone gives the next"
    broker.advance(2)  # the wheel's tick
    broker.wait_until(lambda: not list(broker.directory.glob("orders-0/*.deleted")))


def test_where_a_log_is_clean_is_written_down_and_known_after_a_restart(broker: InProcessBroker) -> None:
    fill(broker, "orders")
    checkpoint = broker.directory / "cleaner-offset-checkpoint"
    rest_until(broker, lambda: checkpoint.exists() and checkpoint.read_text() == "0\n1\norders 0 6\n")
    broker.restart()
    assert broker.log("orders").cleaned_to == 6
    delete(broker, "orders")
    broker.wait_until(lambda: checkpoint.read_text() == "0\n0\n")


def test_topics_that_are_not_compacted_and_logs_that_are_clean_are_left_alone(broker: InProcessBroker) -> None:
    broker.create_topic("events")
    broker.produce("events", b"x")
    broker.log("events").roll(broker.clock.now_ms())
    look(broker)
    look(broker)
    assert broker.server.components.log_cleaner.stats.rounds == 0


def test_a_log_that_cannot_be_cleaned_is_left_alone_from_then_on_and_the_others_are_cleaned(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, "bad")
    fill(broker, "good")
    path = Path(broker.log("bad").segments[0].log_path)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    cleaner = broker.server.components.log_cleaner
    with caplog.at_level(logging.ERROR):
        rest_until(broker, lambda: cleaner.stats.failed_rounds == 1)
        broker.wait_until(lambda: cleaner.stats.rounds == 1)
        look(broker)
    assert values(broker, "good") == [b"2", b"2"]
    assert cleaner.stats.failed_rounds == 1
    assert [str(one.topic_partition) for one in cleaner.uncleanable] == ["bad-0"]
    (line,) = [one.getMessage() for one in caplog.records if "bad-0" in one.getMessage()]
    assert "bad-0 is not cleaned any more until the next start" in line
    assert "names the CRC" in line


def test_a_log_over_which_processes_die_is_given_up_after_the_third(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.logs.cleaner_process.CHILD", "tests.support.no_such_module")
    fill(broker, "orders")
    cleaner = broker.server.components.log_cleaner
    for deaths in (1, 2, 3):
        rest_until(broker, lambda deaths=deaths: cleaner.stats.deaths >= deaths)
    look(broker)
    assert cleaner.stats.deaths == 3
    assert list(cleaner.uncleanable.values()) == ["3 cleaners have died of it"]
    assert values(broker, "orders") == [b"0", b"0", b"1", b"1", b"2", b"2"]


def test_a_topic_may_be_deleted_and_made_again_while_it_is_cleaned(broker: InProcessBroker) -> None:
    alter_broker(broker, log_cleaner_io_max_bytes_per_second=1)
    fill(broker, "orders")
    cleaner = broker.server.components.log_cleaner
    log = broker.log("orders")
    rest_until(broker, lambda: log.is_being_cleaned)
    delete(broker, "orders")
    broker.wait_until(lambda: not log.is_being_cleaned)
    fill(broker, "orders", segments=1)
    assert values(broker, "orders") == [b"0", b"0"]
    assert (cleaner.stats.deaths, cleaner.stats.failed_rounds) == (0, 0)


def test_a_topic_that_was_made_again_is_cleaned_once_the_round_over_the_deleted_log_is_over(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds in one directory would write the same files."""
    prepare, has_begun, may_go_on = SegmentSwap.prepare, threading.Event(), threading.Event()

    def prepare_slowly(swap: SegmentSwap) -> None:
        has_begun.set()
        may_go_on.wait(60)
        prepare(swap)

    monkeypatch.setattr(SegmentSwap, "prepare", prepare_slowly)
    fill(broker, "orders")
    cleaner, deleted = broker.server.components.log_cleaner, broker.log("orders")
    rest_until(broker, has_begun.is_set)
    delete(broker, "orders")
    fill(broker, "orders")
    broker.advance(1)
    alter_broker(broker, log_cleaner_threads=2)
    broker.wait_until(lambda: cleaner.stats.looked_ms == broker.clock.now_ms())
    assert not broker.log("orders").is_being_cleaned
    may_go_on.set()
    broker.wait_until(lambda: not deleted.is_being_cleaned)
    rest_until(broker, lambda: cleaner.stats.rounds == 1)
    assert values(broker, "orders") == [b"2", b"2"]


def test_a_log_that_begins_anew_while_a_copy_is_put_in_place_goes_on_and_is_not_clean(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a follower's does whose leader has nothing of it. The report of the round has come before."""
    sync, is_swapped_in, may_go_on = SegmentSwap.sync, threading.Event(), threading.Event()
    cleaner, logs = broker.server.components.log_cleaner, broker.server.components.logs

    def sync_slowly(swap: SegmentSwap) -> None:
        if swap.copy in log.segments:
            is_swapped_in.set()
            may_go_on.wait(60)
        sync(swap)

    monkeypatch.setattr(SegmentSwap, "sync", sync_slowly)
    fill(broker, "orders")
    log = broker.log("orders")
    rest_until(broker, is_swapped_in.is_set)

    cleaner.abort(log.topic_partition)
    logs.truncate_fully_to(log.topic_partition, 0, broker.clock.now_ms())
    may_go_on.set()
    broker.wait_until(lambda: not log.is_being_cleaned)

    assert not any(directory.has_failed for directory in logs.directories)
    assert (log.cleaned_to or 0, cleaner.stats.rounds, cleaner.stats.failed_rounds) == (0, 0, 0)
    assert broker.produce("orders", b"next") == 0


def test_a_full_disk_stops_cleaning_until_there_is_space(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, "orders")
    cleaner = broker.server.components.log_cleaner
    monkeypatch.setattr("broker.logs.cleaner_process.CHILD", "tests.support.children")
    with caplog.at_level(logging.ERROR):
        for rounds in (1, 2):
            rest_until(broker, lambda rounds=rounds: cleaner.stats.failed_rounds >= rounds)
    assert len([one for one in caplog.records if "cannot be cleaned now" in one.getMessage()]) == 1
    monkeypatch.undo()
    rest_until(broker, lambda: cleaner.stats.rounds == 1)
    assert values(broker, "orders") == [b"2", b"2"]


def test_new_settings_end_a_backoff_and_change_the_number_of_cleaners(broker: InProcessBroker) -> None:
    fill(broker, "orders")
    alter_broker(broker, log_cleaner_threads=2)
    cleaner = broker.server.components.log_cleaner
    broker.wait_until(lambda: cleaner.stats.rounds == 1)
    assert values(broker, "orders") == [b"2", b"2"]


def test_a_round_under_way_begins_anew_when_more_bytes_a_second_are_allowed(broker: InProcessBroker) -> None:
    alter_broker(broker, log_cleaner_io_max_bytes_per_second=1)
    fill(broker, "orders")
    log, cleaner = broker.log("orders"), broker.server.components.log_cleaner
    rest_until(broker, lambda: log.is_being_cleaned)
    alter_broker(broker, log_cleaner_io_max_bytes_per_second=1e9)
    broker.wait_until(lambda: cleaner.stats.rounds == 1)
    assert values(broker, "orders") == [b"2", b"2"]
    assert (cleaner.stats.deaths, cleaner.stats.failed_rounds, cleaner.uncleanable) == (0, 0, {})


def test_a_round_over_a_topic_that_is_compacted_no_more_is_ended(broker: InProcessBroker) -> None:
    alter_broker(broker, log_cleaner_io_max_bytes_per_second=1)
    fill(broker, "orders")
    log, cleaner = broker.log("orders"), broker.server.components.log_cleaner
    rest_until(broker, lambda: log.is_being_cleaned)
    alter(broker, TOPIC, "orders", cleanup_policy="delete")
    broker.wait_until(lambda: not log.is_being_cleaned)
    look(broker)
    assert values(broker, "orders") == [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert (cleaner.stats.rounds, cleaner.stats.deaths, cleaner.stats.failed_rounds) == (0, 0, 0)


def test_a_broker_that_stops_in_the_middle_of_a_round_stops_in_order(broker: InProcessBroker) -> None:
    alter_broker(broker, log_cleaner_io_max_bytes_per_second=1)
    fill(broker, "orders")
    log = broker.log("orders")
    rest_until(broker, lambda: log.is_being_cleaned)
    broker.restart()
    assert values(broker, "orders") == [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert not list(broker.directory.glob("orders-0/*.cleaned"))


def test_nothing_is_cleaned_with_the_cleaner_off(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data", log_cleaner_enable=False) as broker:
        fill(broker, "orders")
        broker.advance(3 * BACKOFF_MS)
        broker.settle()
        assert broker.server.components.log_cleaner.stats.looked_ms == 0
