"""A crash run: a broker that is killed and started again, its clients meanwhile, and the checks after each start."""

from __future__ import annotations

import random
import re
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

from dev.broker_process import BrokerDidNotStart, BrokerProcess, port_below_client_ports
from dev.waiting import until
from storage.checkpoints import CLEAN_SHUTDOWN
from tests.crash.administrator import Administrator, AdministratorAtWork
from tests.crash.consumers import Consumer, consumers
from tests.crash.history import PartitionHistory
from tests.crash.moments import MOMENTS, name_of
from tests.crash.offline import verify
from tests.crash.producers import Producer, producers
from tests.crash.promises import Promise, require
from tests.crash.stored import Stored
from tests.crash.topics import PLACES, TOPICS, Place, Stands

BRISK: Final = {
    "log.initial.task.delay.ms": "10",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}
"""What otherwise happens every minute happens all the time: these settings and the defaults take turns."""

KILLS_BETWEEN_VERIFICATIONS: Final = 10

TROUBLE: Final = re.compile(r" ERROR | CRITICAL |Traceback")
"""What the broker's log never has."""

_CUT: Final = re.compile(r"recovered (?P<log>\S+): .* (?P<bytes>[1-9]\d*) cut off")
_A_WHILE_S: Final = 60.0


@dataclass(slots=True, kw_only=True)
class Summary:
    """What a run has come through."""

    kills: Counter[str] = field(default_factory=Counter)
    """By moment."""
    restarts: int = 0
    clean_stops: int = 0
    torn_tails: int = 0
    torn_bytes: int = 0
    records: Counter[str] = field(default_factory=Counter)
    """Acknowledged, by producer."""
    doubled: int = 0
    consumed: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    """Answered, by kind."""
    verifications: int = 0
    verify_missing: str = ""
    """Why nothing was verified offline."""


class CrashRun:
    """One run, to be used in a `with`."""

    def __init__(self, directory: Path, *, seed: int, report: Callable[[str], None] = lambda line: None) -> None:
        self.chance = random.Random(seed)
        self.broker = BrokerProcess(directory, port=port_below_client_ports())
        self.administrator = Administrator(self._own_chance())
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.start_s = 0.3
        self.summary = Summary()
        self._report = report
        self._kills_wanted = 0
        self._histories: dict[Place, PartitionHistory] = {}
        self._work: AdministratorAtWork | None = None
        self._moment = "at the first start"
        self._is_told_to_stop = False
        self._had_marker = False
        """The process has not been ready, and found the marker of a clean stop."""
        self._log_read = 0

    def __enter__(self) -> CrashRun:
        # Whoever watches a file grow must be quick.
        self._switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for user in (*self.producers, *self.consumers):
            user.stop()
        self.broker.close()
        sys.setswitchinterval(self._switch_interval_s)

    def go(self, kills: int) -> Summary:
        """Kill so many times. Raises PromiseBroken."""
        self._kills_wanted = kills
        self._begin()
        moments, weights = list(MOMENTS), list(MOMENTS.values())
        verified_at = 0
        while self._kills < kills:
            (moment,) = self.chance.choices(moments, weights)
            self._moment = name_of(moment)
            moment(self)
            if self._kills >= verified_at + KILLS_BETWEEN_VERIFICATIONS:
                verified_at = self._kills
                self._verify()
            self._live()
        self._end()
        return self.summary

    # The course of things ---------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """The first start, which may be killed too; then everybody begins."""
        for _ in range(self.chance.randint(0, 2)):
            self.launch()
            time.sleep(self.chance.uniform(0, self.start_s))
            self.kill()
        self._start()
        stored = Stored(self.broker.bootstrap)
        self.administrator.create_lasting_topics(stored)
        until(lambda: all(map(stored.is_served, PLACES)), "a leader for every partition")
        stored.close()
        self.producers = producers(self.broker.bootstrap, self._own_chance())
        self.consumers = consumers(self.broker.bootstrap)
        once_only = {producer.name for producer in self.producers if producer.is_idempotent}
        self._histories = {place: PartitionHistory(TOPICS[place.topic], place, once_only) for place in PLACES}
        for user in (*self.producers, *self.consumers):
            user.start()
        self._check(epochs_must_rise=False)
        self._set_to_work()

    def _live(self) -> None:
        """Start again, look whether everything is there, and let everybody go on."""
        is_clean = self._has_marker
        self._start()
        began = time.monotonic()
        self._check(epochs_must_rise=not is_clean)
        self._report(
            f"{self._kills:5} of {self._kills_wanted}  killed {self._moment}: ready in {self.start_s:.2f} s, "
            f"{sum(self.summary.records.values()):,} records checked in {time.monotonic() - began:.2f} s"
        )
        self._set_to_work()

    def _end(self) -> None:
        """Everybody comes to an end: what was sent is acknowledged, what is there is consumed."""
        for producer in self.producers:
            producer.stop()
        for producer in self.producers:
            has_ended = producer.has_ended(_A_WHILE_S)
            self._hear()
            require(
                has_ended and producer.answered == producer.sent,
                Promise.ANSWERED,
                f"{producer.name} has sent {producer.sent} records and got {producer.answered} answers",
            )
        self._end_work()
        self._check(epochs_must_rise=False)
        for consumer in self.consumers:
            until(partial(self._is_done, consumer), f"{consumer.name} at the end")
            consumer.stop()
            consumer.has_ended(_A_WHILE_S)
        self._moment = "at the end"
        self._set_to_work()
        self.kill()
        self._verify()
        self._live()
        self._stop()
        self._verify()
        self._live()
        self._stop()
        self.summary.doubled = sum(history.doubled for history in self._histories.values())
        self.summary.changes = self.administrator.answered

    def _is_done(self, consumer: Consumer) -> bool:
        """Whether it has read everything, or never will."""
        bounds = {place: self._histories[place].bounds for place in consumer.places}
        return bool(consumer.failures) or all(
            # Of a partition that was emptied before it came it sees nothing.
            position == bounds[place].end or bounds[place].start == bounds[place].end
            for place, position in consumer.positions.items()
        )

    # The broker -------------------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Start the process and wait for nothing."""
        self._prepare()
        self.broker.launch()

    def kill(self) -> None:
        """SIGKILL, unless it has stopped already, as it had been told."""
        self.broker.kill()
        code = self.broker.process.returncode
        if code == 0 and self._is_told_to_stop:
            self.summary.clean_stops += 1
        else:
            require(code == -signal.SIGKILL, Promise.LIVES, f"exit code {code}\n{self.broker.log_text(last_lines=40)}")
            self.summary.kills[self._moment] += 1
        self._has_died(may_leave_marker=self._is_told_to_stop)

    def tell_to_stop(self) -> None:
        """SIGTERM."""
        self._is_told_to_stop = True
        self.broker.process.send_signal(signal.SIGTERM)

    def _stop(self) -> None:
        """Stop in order."""
        self.broker.stop()
        self.summary.clean_stops += 1
        require(self._has_marker, Promise.MARKER, "a clean stop has left none")
        self._has_died(may_leave_marker=True)

    def _start(self) -> None:
        self._prepare()
        began = time.monotonic()
        try:
            self.broker.start(timeout_s=_A_WHILE_S)
        except BrokerDidNotStart as error:
            require(False, Promise.LIVES, str(error))
        self.start_s = time.monotonic() - began
        self._had_marker = False
        self.summary.restarts += 1

    def _prepare(self) -> None:
        self.broker.settings = dict(BRISK) if self.chance.random() < 0.5 else {}
        self._is_told_to_stop = False
        self._had_marker = self._has_marker

    def _has_died(self, *, may_leave_marker: bool) -> None:
        require(
            may_leave_marker or self._had_marker or not self._has_marker,
            Promise.MARKER,
            f"it is there, and the broker was killed {self._moment}",
        )
        self._read_log()
        if self._work is None:
            return  # nobody has used it since the last time
        self._end_work()
        self._hear()
        for history in self._histories.values():
            history.broker_died()

    @property
    def _has_marker(self) -> bool:
        return (self.broker.data_directory / CLEAN_SHUTDOWN).exists()

    @property
    def _kills(self) -> int:
        return self.summary.kills.total()

    def _read_log(self) -> None:
        with self.broker.log_path.open(errors="replace") as log:
            log.seek(self._log_read)
            text = log.read()
            self._log_read = log.tell()
        require(not TROUBLE.search(text), Promise.LIVES, f"the broker's log has trouble\n{text}")
        for cut in _CUT.finditer(text):
            self.summary.torn_tails += 1
            self.summary.torn_bytes += int(cut["bytes"])

    # Those who use it -------------------------------------------------------------------------------------------------

    def _set_to_work(self) -> None:
        self._work = AdministratorAtWork(self.administrator, self.broker.bootstrap, self._own_chance())
        self._work.start()
        for producer in self.producers:
            producer.broker_lives()

    def _end_work(self) -> None:
        assert self._work is not None
        self._work.stop()
        require(self._work.has_ended(_A_WHILE_S), Promise.METADATA, "a change was neither answered nor cut off")
        failures = self._work.failures
        self._work = None
        if failures:
            raise failures[0]

    def _hear(self) -> None:
        """What producers and consumers have been told since the last time."""
        for user in (*self.producers, *self.consumers):
            if user.failures:
                raise user.failures[0]
        for producer in self.producers:
            self.summary.records[producer.name] += self._tell(producer.acknowledged)
        for consumer in self.consumers:
            self.summary.consumed += self._tell(consumer.seen)

    def _tell(self, told: deque[Stands]) -> int:
        count = 0
        while told:
            stands = told.popleft()
            self._histories[stands.place].was_told(stands)
            count += 1
        return count

    def _own_chance(self) -> random.Random:
        return random.Random(self.chance.random())

    # Checks -----------------------------------------------------------------------------------------------------------

    def _check(self, *, epochs_must_rise: bool) -> None:
        require(not self._has_marker, Promise.MARKER, "it is there, and the broker serves")
        self._hear()
        stored = Stored(self.broker.bootstrap)
        try:
            self.administrator.check(stored)
            topics = stored.topics()
            for place, history in self._histories.items():
                leader_epoch = topics[place.topic].partitions[place.partition].leader_epoch
                history.look(stored, leader_epoch=leader_epoch, epoch_must_rise=epochs_must_rise, chance=self.chance)
        except OSError as error:
            require(False, Promise.LIVES, f"{error}\n{self.broker.log_text(last_lines=40)}")
        finally:
            stored.close()
        self._read_log()

    def _verify(self) -> None:
        """The broker is dead: the offline check of its directory."""
        reason = verify(self.broker.data_directory)
        self.summary.verify_missing = reason
        self.summary.verifications += not reason
