"""Broker: a broker for tests, as Python code has it in hand."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from ottla.testing.control import Control
from ottla.testing.errors import BrokerError
from ottla.testing.spawning import ZYGOTE, Spawned

START_S: Final = 60.0
"""How long a broker may take to start, in seconds: a machine may be busy."""

WAIT_S: Final = 10.0
"""How long `Broker.wait_for` waits by default, in seconds."""

_LAST_LINES: Final = 20
_LAST_REQUESTS: Final = 20


@dataclass(frozen=True, slots=True)
class Record:
    """A record that is in a topic."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = 0
    offset: int = -1
    timestamp_ms: int = -1
    """Milliseconds since 1970."""


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


Seed = Mapping[str, Any] | Record | bytes | str | None
"""A record to be written: its value, or `value`, `key`, `headers`, `partition` and `timestamp_ms` by name."""


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
        self._call("/topics/create", topics=[{"name": name, "partitions": partitions, "configs": dict(configs or {})}])

    def produce(self, topic: str, records: Iterable[Seed]) -> list[tuple[int, int]]:
        """Write records; return the partition and offset of each. A topic that is missing is made."""
        answer = self._call("/records/write", topic=topic, records=[_as_json(record) for record in records])
        return [(one["partition"], one["offset"]) for one in answer["offsets"]]

    def seed(self, topic: str, path: str | Path) -> None:
        """Write the records of a file: one JSON object a line (``.jsonl``), or a YAML list."""
        self.produce(topic, read_seeds(Path(path)))

    def records(self, topic: str, *, partition: int | None = None, uncommitted: bool = False) -> list[Record]:
        """The records of a topic as a reader sees them, partition by partition. Raises `BrokerError` without it."""
        answer = self._call("/records/read", topic=topic, partition=partition, uncommitted=uncommitted)
        return [_from_json(record) for record in answer["records"]]

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
        places = (
            None if committed is None else {f"{name}-{index}": offset for (name, index), offset in committed.items()}
        )
        return self._call(
            "/wait",
            group=group, state=state, members=members, committed=places, caught_up=caught_up,
            topic=topic, records=records, timeout_ms=int(timeout * 1000),
        )  # fmt: skip

    # Time and work

    def advance(self, by: timedelta | None = None, **units: float) -> None:
        """Move the clock of a broker with the setting `ottla.clock=manual`: ``advance(days=7)``. What becomes due
        meanwhile has happened when this returns."""
        step = timedelta(**units) if by is None else by
        self._call("/clock/advance", ms=step // timedelta(milliseconds=1))

    def now_ms(self) -> int:
        """The broker's time, in milliseconds since 1970."""
        return int(self._control_listener.read("/clock")["now_ms"])

    def run(self, job: str) -> None:
        """Let the broker do now what it does now and then: ``retention``, ``compaction``, ``offset-expiry``,
        ``transaction-timeouts``, ``transactional-id-expiry`` or ``producer-id-expiry``."""
        self._call(f"/jobs/{job}")

    # What clients do

    def requests(self, **which: str) -> list[dict[str, Any]]:
        """The last requests of clients that fit: by ``api``, ``client_id``, ``topic`` or ``group``."""
        return list(self._call("/requests", **which)["requests"])

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


def read_seeds(path: Path) -> list[Mapping[str, Any]]:
    """The records of a file: one JSON object a line, or a YAML list. Raises `BrokerError`."""
    text = path.read_text()
    try:
        if path.suffix in (".yaml", ".yml"):
            import yaml

            found = yaml.safe_load(text)
        else:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise BrokerError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, Sequence) or not all(isinstance(one, Mapping) for one in found):
        raise BrokerError(f"{path} is no list of records, each with value, key, headers, partition or timestamp_ms")
    return list(found)


def _line_of(request: Mapping[str, Any]) -> str:
    words = (
        request["api"],
        f"v{request['version']}",
        f"of {request['client_id']!r}",
        *request["topics"],
        request["group"],
    )
    return " ".join(words).rstrip()


def _as_json(seed: Seed) -> dict[str, Any]:
    if isinstance(seed, Record):
        seed = {"value": seed.value, "key": seed.key, "headers": dict(seed.headers), "partition": seed.partition}
    given: dict[str, Any] = dict(seed) if isinstance(seed, Mapping) else {"value": seed}
    shown: dict[str, Any] = {}
    for name, value in given.items():
        if name == "headers":
            shown[name] = {key: one.decode() if isinstance(one, bytes) else one for key, one in value.items()}
        elif name not in ("key", "value") or value is None or isinstance(value, str):
            shown[name] = value
        elif isinstance(value, bytes):
            shown[f"{name}_base64"] = base64.b64encode(value).decode()
        else:
            shown[name] = json.dumps(value)  # as most programs write it
    return shown


def _from_json(record: Mapping[str, Any]) -> Record:
    return Record(
        value=_bytes(record, "value"),
        key=_bytes(record, "key"),
        headers=tuple((one["key"], _bytes(one, "value")) for one in record["headers"]),
        partition=record["partition"],
        offset=record["offset"],
        timestamp_ms=record.get("timestamp_ms", -1),
    )


def _bytes(shown: Mapping[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in shown:
        return base64.b64decode(shown[f"{name}_base64"])
    text = shown[name]
    return None if text is None else str(text).encode()
