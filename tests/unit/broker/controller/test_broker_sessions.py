"""Sessions of brokers, and the states that heartbeats lead to."""

import pytest

from broker.controller.broker_sessions import BrokerControlState, BrokerSessions, next_state

FENCED, UNFENCED = BrokerControlState.FENCED, BrokerControlState.UNFENCED
SHUTTING_DOWN, NOW = BrokerControlState.CONTROLLED_SHUTDOWN, BrokerControlState.SHUTDOWN_NOW


def after(state, *, fence=False, shutdown=False, caught_up=True, leads=False, known=False):
    return next_state(
        state,
        wants_fence=fence,
        wants_shutdown=shutdown,
        is_caught_up=caught_up,
        leads_anything=lambda: leads,
        is_shutdown_known=lambda: known,
    )


@pytest.mark.parametrize(
    ("state", "heartbeat", "expected"),
    [
        (FENCED, {}, UNFENCED),
        (FENCED, {"caught_up": False}, FENCED),
        (FENCED, {"fence": True}, FENCED),
        (FENCED, {"shutdown": True}, NOW),
        (FENCED, {"fence": True, "shutdown": True}, NOW),
        (UNFENCED, {}, UNFENCED),
        (UNFENCED, {"caught_up": False}, UNFENCED),
        (UNFENCED, {"fence": True}, FENCED),
        (UNFENCED, {"fence": True, "shutdown": True, "leads": True}, NOW),
        (UNFENCED, {"shutdown": True, "leads": True}, SHUTTING_DOWN),
        (UNFENCED, {"shutdown": True, "leads": False}, NOW),
        (SHUTTING_DOWN, {"shutdown": True, "leads": True, "known": True}, SHUTTING_DOWN),
        (SHUTTING_DOWN, {"shutdown": True, "leads": False, "known": False}, SHUTTING_DOWN),
        (SHUTTING_DOWN, {"shutdown": True, "leads": False, "known": True}, NOW),
        (SHUTTING_DOWN, {"fence": True, "shutdown": True, "leads": True}, NOW),
        (SHUTTING_DOWN, {"fence": True}, FENCED),
        (SHUTTING_DOWN, {}, SHUTTING_DOWN),
    ],
)
def test_a_heartbeat_leads_to_the_next_state(state, heartbeat, expected):
    assert after(state, **heartbeat) is expected


def test_a_session_lasts_as_long_as_the_timeout_after_the_last_heartbeat():
    sessions = BrokerSessions(timeout_ms=9_000)
    sessions.begin(2, broker_epoch=5, now_ms=1_000)
    assert sessions.is_valid(2, 5, now_ms=10_000)
    assert not sessions.is_valid(2, 5, now_ms=10_001)

    sessions.touch(2, 5, metadata_offset=7, now_ms=4_000)
    assert sessions.is_valid(2, 5, now_ms=13_000)
    assert not sessions.is_valid(2, 4, now_ms=13_000)
    assert not sessions.is_valid(3, 5, now_ms=0)


def test_the_session_that_is_over_first_comes_first():
    sessions = BrokerSessions(timeout_ms=9_000)
    for broker_id, now_ms in ((2, 3_000), (3, 1_000), (4, 2_000)):
        sessions.begin(broker_id, broker_epoch=1, now_ms=now_ms)

    assert sessions.next_deadline_ms([2, 3, 4]) == 10_001
    assert sessions.overdue([2, 3, 4], now_ms=10_000) == []
    assert sessions.overdue([2, 3, 4], now_ms=12_001) == [3, 4, 2]
    assert sessions.overdue([4], now_ms=12_001) == [4]
    assert sessions.next_deadline_ms([]) is None


def test_a_shutdown_is_known_once_every_active_broker_has_applied_it():
    sessions = BrokerSessions(timeout_ms=9_000)
    for broker_id in (2, 3, 4):
        sessions.begin(broker_id, broker_epoch=1, now_ms=0)
    sessions.begin_shutdown(2, offset=50)

    def is_known(high_watermark=51):
        return sessions.is_shutdown_known(2, [3, 4], end_offset=60, high_watermark=high_watermark)

    assert not is_known()
    sessions.touch(3, 1, metadata_offset=50, now_ms=1)
    sessions.touch(4, 1, metadata_offset=49, now_ms=1)
    assert not is_known()
    sessions.touch(4, 1, metadata_offset=50, now_ms=2)
    assert is_known()
    assert not is_known(high_watermark=50)


def test_a_controller_that_has_started_since_waits_for_all_it_knows():
    sessions = BrokerSessions(timeout_ms=9_000)
    sessions.begin(3, broker_epoch=1, now_ms=0)
    sessions.touch(3, 1, metadata_offset=58, now_ms=0)
    assert not sessions.is_shutdown_known(2, [3], end_offset=60, high_watermark=60)

    sessions.touch(3, 1, metadata_offset=59, now_ms=1)
    assert sessions.is_shutdown_known(2, [3], end_offset=70, high_watermark=70)
