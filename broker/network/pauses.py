"""Why a connection is not read, as a table: each reason, where it is set and where it is cleared.

A connection is read while no reason holds. It sets and clears reasons through three methods only; a test compares the
table with the sources (tests/unit/broker/network/test_pauses.py).
"""

from typing import Final, NamedTuple


class Pause:
    """The reasons, as bits of a plain int: an `IntFlag` costs a microsecond each time it is looked at."""

    IN_FLIGHT: Final = 1
    """Too many of the connection's requests have no answer yet (`ottla.connection.max.in.flight`)."""
    CHANNEL: Final = 2
    """The request channel is full (`queued.max.requests`)."""
    MEMORY: Final = 4
    """There is no memory for what comes (`queued.max.request.bytes`)."""
    ANSWERS: Final = 8
    """The peer does not take its answers."""
    FINISHING: Final = 16
    """No more requests are taken: the connection closes when its last answer is sent."""
    TURN: Final = 32
    """The connection has put in as many requests as it may in one turn of the loop."""
    THROTTLED: Final = 64
    """The client has exceeded a quota (KIP-219)."""
    HANDSHAKE: Final = 128
    """The transport's handshake is not done."""


class PauseRule(NamedTuple):
    """Which methods of `broker.network.connection.Connection` set a reason, and which clear it."""

    reason: int
    set_by: tuple[str, ...]
    cleared_by: tuple[str, ...]
    """Empty: the reason holds until the connection is closed."""


PAUSE_RULES: Final = {
    "IN_FLIGHT": PauseRule(Pause.IN_FLIGHT, ("_wait_to_put",), ("_settle",)),
    "CHANNEL": PauseRule(Pause.CHANNEL, ("_wait_to_put",), ("_on_channel_not_full",)),
    "MEMORY": PauseRule(Pause.MEMORY, ("_receive_in_place", "_cut"), ("memory_available", "_give_back_all")),
    "ANSWERS": PauseRule(Pause.ANSWERS, ("_weigh_answers",), ("_weigh_answers",)),
    "FINISHING": PauseRule(Pause.FINISHING, ("_finish", "close"), ()),
    "TURN": PauseRule(Pause.TURN, ("_wait_to_put",), ("_on_next_turn",)),
    "THROTTLED": PauseRule(Pause.THROTTLED, ("throttle",), ("_end_throttle",)),
    "HANDSHAKE": PauseRule(Pause.HANDSHAKE, ("__init__",), ("_shake_hands",)),
}


def names_of(pauses: int) -> list[str]:
    """The reasons in a set of bits, by name."""
    return [name for name, rule in PAUSE_RULES.items() if pauses & rule.reason]
