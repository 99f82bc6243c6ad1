"""What must be true after every restart, one sentence each, and the error that says which one was broken."""

from __future__ import annotations

from enum import StrEnum


class Promise(StrEnum):
    """What the suite checks. The sentence is what a failure is called."""

    LIVES = "the broker starts, and runs until it is killed"
    MARKER = "the marker of a clean stop is there after a clean stop only"
    NOTHING_MISSING = "nothing acknowledged is missing"
    NOTHING_DOUBLED = "an idempotent producer's records are there once, and in order"
    NOTHING_CHANGED = "what was read once is still there, as it was"
    CONTINUOUS = "offsets are continuous, and every batch is whole"
    HIGH_WATERMARK = "the high watermark is above every offset acknowledged or consumed"
    LOG_START = "what was deleted stays deleted, and nothing else is"
    EPOCH_RISES = "the leader epoch rises with every unclean start"
    EPOCH_ENDS = "an earlier leader epoch ends where the log ended in it"
    LOOK_UPS = "looking for an offset or a time finds its batch"
    METADATA = "an answered change of topics and configs stays"
    CONSUMERS = "a consumer sees every offset, in order"
    TABLE = "of a compacted topic the last value of each key is read back, and little else"
    ANSWERED = "what was sent is acknowledged in the end"
    VERIFY = "verify is clean"
    GROUP_READS = "every acknowledged record is read by one of the group"
    GROUP_OFFSETS = "an offset that is committed stands, and none goes back"
    GROUP_GENERATIONS = "generations rise, and in each of them a partition is one member's"
    GROUP_REBALANCES = "a rebalance is over in the turn in which nobody is waited for any more"
    GROUP_RECORDS = "what is written of a group adds up to what is answered"
    TRANSFORMED = "what is transformed in transactions is there once, and in order"
    ARCHIVE = "every row of an archive is there once for every reader, and what is archived stays"


class PromiseBroken(AssertionError):
    """One of the promises was not kept; how, with the values."""

    def __init__(self, promise: Promise, detail: str) -> None:
        super().__init__(f"BROKEN: {promise} — {detail}")
        self.promise = promise


def require(holds: bool, promise: Promise, detail: str) -> None:
    """Raise `PromiseBroken` unless it holds."""
    if not holds:
        raise PromiseBroken(promise, detail)
