"""Broker: a broker for tests, as Python code has it in hand."""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from ottla.testing.control import Control
from ottla.testing.errors import BrokerError, shown
from ottla.testing.records import Record, Seed, read_seeds, record_from_json, records_as_json
from ottla.testing.spawning import ZYGOTE, Spawned

START_S: Final = 60.0
"""How long a broker may take to start, in seconds: a machine may be busy."""

WAIT_S: Final = 10.0
"""How long `Broker.wait_for` waits by default, in seconds."""

MOST_WAIT_S: Final = 86_400.0
"""How long it waits at most, in seconds."""

JOBS: Final = (
    "retention", "compaction", "offset-expiry", "transaction-timeouts", "transactional-id-expiry", "producer-id-expiry",
)  # fmt: skip
"""What a broker does now and then, and a test lets it do now."""

_LAST_LINES: Final = 20
_LAST_REQUESTS: Final = 20


class Fault:
    """A fault rule in force."""

    def __init__(self, broker: Broker, number: int) -> None:
        self._broker = broker
        self.number = number

    @property
    def applied(self) -> int:
        """How often it has let a request go wrong. Raises `BrokerError` once it is removed."""
        for one in self._broker._control_listener.read("/faults")["rules"]:
            if one["rule"] == self.number:
                return int(one["applied"])
        raise BrokerError(f"the fault rule {self.number} is in force no more")

    def remove(self) -> None:
        """Take the rule out of force. Raises `BrokerError` if it is."""
        self._broker._call("/faults/remove", rule=self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


@dataclass
class Broker:
    """A broker for tests. `start` and `close`, or ``with`` and ``async with``.

    Its data is temporary, and is gone when it is closed, or this process ends, however that is.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    """Broker settings by their names, such as `ottla.clock`."""
    listeners: int = 1
    """How many listeners it has, each on a port of its own."""
    faults: str | Path | None = None
    """A YAML file with fault rules that it begins with, and begins anew with."""

    def __post_init__(self) -> None:
        """Raises `BrokerError` for an argument of another type."""
        if not isinstance(self.settings, Mapping):
            raise BrokerError(f"settings is {shown(self.settings)}, expected values by the names of settings")
        for name, value in self.settings.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise BrokerError(f"settings has {shown(name)}: {shown(value)}, expected two texts")
        if not isinstance(self.listeners, int) or isinstance(self.listeners, bool) or self.listeners < 1:
            raise BrokerError(f"listeners is {shown(self.listeners)}, expected a whole number from 1")
        if not isinstance(self.faults, str | Path | None):
            raise BrokerError(f"faults is {shown(self.faults)}, expected the path of a file")
        self._spawned: Spawned | None = None
        self._control: Control | None = None
        self._log: IO[bytes] | None = None

    # Life

    def start(self) -> Self:
        """Start, and return once the broker accepts requests. Raises `BrokerError`."""
        if self._spawned is None:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
            try:
                self._spawned = ZYGOTE.spawn(self._arguments(), self._log, START_S)
            except BaseException:
                self._log.close()
                raise
            self._control = Control(self._spawned.description["control"])
        return self

    def close(self) -> None:
        """Stop the broker, and wait until its process has ended and its data is gone."""
        if self._control is not None:
            self._control.close()
        if self._spawned is not None:
            self._spawned.end(START_S)
            self._spawned = None
        if self._log is not None:
            self._log.close()

    def reset(self) -> None:
        """Let the broker begin anew: no topics, groups, users or connections, as at its start, on the same ports."""
        self._call("/reset")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # Copies

    def snapshot(self) -> Snapshot:
        """Keep the broker's data of now. Clients go on."""
        return Snapshot(self, int(self._call("/snapshots/take")["snapshot"]))

    def fork(self) -> ForkedBroker:
        """A second broker with the data of now, on ports of its own. Clients of this one go on."""
        return ForkedBroker(self._call("/fork"))

    # Where it is

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the first listener, for Kafka's clients."""
        return str(self._description["bootstrap"])

    @property
    def listener_addresses(self) -> dict[str, str]:
        """``host:port`` of each listener, by its name."""
        return dict(self._description["listeners"])

    @property
    def control_url(self) -> str:
        """Where the control listener is, for calls from other languages."""
        return str(self._description["control"])

    @property
    def process_id(self) -> int:
        """The number of the broker's process."""
        return int(self._description["pid"])

    # Topics and records

    def create_topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Make a topic. Raises `BrokerError` if there is one of this name."""
        topic = {"name": name, "partitions": partitions, "configs": {} if configs is None else configs}
        self._call("/topics/create", topics=[topic])

    def produce(self, topic: str, records: Iterable[Seed]) -> list[tuple[int, int]]:
        """Write records; return the partition and offset of each. A topic that is missing is made."""
        answer = self._call("/records/write", topic=topic, records=records_as_json(records))
        return [(one["partition"], one["offset"]) for one in answer["offsets"]]

    def seed(self, topic: str, path: str | Path) -> None:
        """Write the records of a file: one JSON object a line (``.jsonl``), or a YAML list."""
        if not isinstance(path, str | Path):
            raise BrokerError(f"path is {shown(path)}, expected the path of a file")
        self.produce(topic, read_seeds(Path(path)))

    def records(self, topic: str, *, partition: int | None = None, uncommitted: bool = False) -> list[Record]:
        """The first 10,000 records of a topic as a reader sees them, partition by partition. Raises `BrokerError`
        without the topic, or the partition."""
        answer = self._call("/records/read", topic=topic, partition=partition, uncommitted=uncommitted)
        return [record_from_json(record) for record in answer["records"]]

    # Groups

    def group(self, group: str) -> dict[str, Any]:
        """A consumer group: its state, members and committed offsets."""
        return self._call("/groups/describe", group=group)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The offsets that a group has committed, by topic and partition."""
        found = self.group(group)["committed"]
        return {
            (name, int(index)): offset for place, offset in found.items() for name, _, index in [place.rpartition("-")]
        }

    def expire_members(self, group: str, member: str | None = None) -> int:
        """Remove members of a group, or one, as if nothing had been heard of them for too long; return how many."""
        return int(self._call("/groups/expire", group=group, member=member)["removed"])

    # Waiting

    def wait_for(
        self,
        *,
        group: str | None = None,
        state: str | None = None,
        members: int | None = None,
        committed: Mapping[tuple[str, int], int] | None = None,
        caught_up: bool = False,
        topic: str | None = None,
        records: int | None = None,
        timeout: float = WAIT_S,
    ) -> dict[str, Any]:
        """Return once all that is given holds, and what there is then. ``timeout`` is in seconds.

        Raises `NotInTime`, and `BrokerError` where nothing, or nothing that makes sense, is waited for.
        """
        if not _is_number(timeout) or not 0 <= timeout <= MOST_WAIT_S:
            raise BrokerError(f"timeout is {shown(timeout)}, expected seconds, from 0 to {MOST_WAIT_S:.0f}")
        places = None if committed is None else _places(committed)
        return self._call(
            "/wait",
            group=group, state=state, members=members, committed=places, caught_up=caught_up,
            topic=topic, records=records, timeout_ms=int(timeout * 1000),
        )  # fmt: skip

    # Time and work

    def advance(
        self,
        by: timedelta | None = None,
        *,
        weeks: float | None = None,
        days: float | None = None,
        hours: float | None = None,
        minutes: float | None = None,
        seconds: float | None = None,
        milliseconds: float | None = None,
    ) -> None:
        """Move the clock of a broker with the setting `ottla.clock=manual`: ``advance(days=7)``. What becomes due
        meanwhile has happened when this returns."""
        units = {
            "weeks": weeks, "days": days, "hours": hours,
            "minutes": minutes, "seconds": seconds, "milliseconds": milliseconds,
        }  # fmt: skip
        given = {unit: much for unit, much in units.items() if much is not None}
        self._call("/clock/advance", ms=_step(by, given) // timedelta(milliseconds=1))

    def now_ms(self) -> int:
        """The broker's time, in milliseconds since 1970."""
        return int(self._control_listener.read("/clock")["now_ms"])

    def run(self, job: str) -> None:
        """Let the broker do now what it does now and then: ``retention``, ``compaction``, ``offset-expiry``,
        ``transaction-timeouts``, ``transactional-id-expiry`` or ``producer-id-expiry``."""
        if job not in JOBS:
            raise BrokerError(f"job is {shown(job)}, expected one of {', '.join(JOBS)}")
        self._call(f"/jobs/{job}")

    # What clients do

    def requests(
        self,
        *,
        api: str | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        group: str | None = None,
    ) -> list[dict[str, Any]]:
        """The last 100 requests of clients that fit all that is given."""
        return list(self._call("/requests", api=api, client_id=client_id, topic=topic, group=group)["requests"])

    def fail(self, **rule: Any) -> Fault:
        """Let requests go wrong: ``fail(api="Produce", topic="orders", nth=2, error="NOT_LEADER_OR_FOLLOWER")``. What a
        rule may say is in docs/testing.md. ``with`` removes the rule in the end. Raises `BrokerError`."""
        return Fault(self, int(self._call("/faults/add", **rule)["rule"]))

    def close_connections(self, client_id: str | None = None) -> int:
        """Close the connections of a client, or all, and return how many."""
        return int(self._call("/clients/close", client_id=client_id)["closed"])

    def log_text(self) -> str:
        """What the broker has logged; nothing once it is closed."""
        if self._log is None:
            return ""
        try:
            self._log.seek(0)
            return self._log.read().decode(errors="replace")
        except ValueError:  # closed, perhaps by another thread just now
            return ""

    def report(self) -> str:
        """What the broker has seen last, for the report of a test that has failed."""
        try:
            requests = self.requests()
            groups = sorted({one["group"] for one in requests if one["group"]})
            shown = [json.dumps(self.group(group)) for group in groups]
        except BrokerError as error:
            return f"{error}\n{self.log_text()}"
        last = [_line_of(one) for one in requests[-_LAST_REQUESTS:]]
        return "\n".join(
            ["last requests:", *last, "groups:", *shown, "log:", *self.log_text().splitlines()[-_LAST_LINES:]]
        )

    # Parts

    @property
    def _description(self) -> dict[str, Any]:
        if self._spawned is None:
            raise BrokerError("the broker does not run")
        return self._spawned.description

    @property
    def _control_listener(self) -> Control:
        if self._control is None or self._spawned is None:
            raise BrokerError("the broker does not run")
        return self._control

    def _call(self, path: str, **arguments: Any) -> dict[str, Any]:
        return self._control_listener.call(path, **arguments)

    def _arguments(self) -> list[str]:
        settings = dict(self.settings)
        if self.listeners > 1:
            names = ["PLAINTEXT", *(f"PLAINTEXT{number}" for number in range(2, self.listeners + 1))]
            settings.setdefault("listeners", ",".join(f"{name}://127.0.0.1:0" for name in names))
            settings.setdefault("listener.security.protocol.map", ",".join(f"{name}:PLAINTEXT" for name in names))
        faults = [] if self.faults is None else ["--faults", str(Path(self.faults).absolute())]
        return [*faults, *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]


class Snapshot:
    """The data of a broker at some moment."""

    def __init__(self, broker: Broker, number: int) -> None:
        self._broker = broker
        self.number = number

    def restore(self) -> None:
        """Let the broker begin anew with this data, on the same ports. Connections are closed."""
        self._broker._call("/snapshots/restore", snapshot=self.number)


class ForkedBroker(Broker):
    """A broker that was forked from another one, and runs in its process."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self._described = description
        self._control = Control(description["control"])

    def start(self) -> Self:
        """It runs already."""
        return self

    def close(self) -> None:
        """Stop the broker."""
        if self._control is not None:
            self._call("/close")
            self._control.close()
            self._control = None

    @property
    def _description(self) -> dict[str, Any]:
        return self._described

    @property
    def _control_listener(self) -> Control:
        if self._control is None:
            raise BrokerError("the broker does not run")
        return self._control


def _line_of(request: Mapping[str, Any]) -> str:
    words = (
        request["api"],
        f"v{request['version']}",
        f"of {request['client_id']!r}",
        *request["topics"],
        request["group"],
    )
    return " ".join(words).rstrip()


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)


def _step(by: object, units: Mapping[str, float]) -> timedelta:
    """How far the clock is moved. Raises `BrokerError`."""
    if by is None and units:
        for unit, much in units.items():
            if not _is_number(much):
                raise BrokerError(f"{unit} is {shown(much)}, expected a number")
        try:
            by = timedelta(**units)
        except OverflowError as error:
            raise BrokerError(f"the clock cannot be moved so far: {error}") from error
    elif units:
        raise BrokerError(f"by is {by!r}, and units of time are given as well: expected one of the two")
    if not isinstance(by, timedelta):
        raise BrokerError(f"by is {shown(by)}, expected a timedelta, or units of time, such as days=7")
    if by < timedelta():
        raise BrokerError(f"the clock cannot be moved by {by}: it goes forward only")
    return by


def _places(committed: object) -> dict[str, Any]:
    if not isinstance(committed, Mapping):
        raise BrokerError(f"committed is {shown(committed)}, expected offsets by topic and partition")
    for place in committed:
        if not isinstance(place, tuple) or len(place) != 2:
            raise BrokerError(f"committed has {shown(place)}, expected a topic and a partition, such as ('orders', 0)")
    return {f"{topic}-{index}": offset for (topic, index), offset in committed.items()}
