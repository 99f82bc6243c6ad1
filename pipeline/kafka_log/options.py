"""The options of `format("kafka_log")`: the applicable options of Spark's Kafka connector, and a few more.

Spark gives their names in lower case only; here they stand as `docs/spark.md` writes them.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from pipeline.errors import PipelineError
from pipeline.reading.ranges import Wanted
from pipeline.schema import COLUMNS, COLUMNS_WITHOUT_HEADERS, HEADERS
from storage.topic_partition import TopicPartition

T = TypeVar("T")

SPLIT_BYTES: Final = 128 << 20
"""Spark's default for the bytes of files that one task reads (`spark.sql.files.maxPartitionBytes`)."""

_BOOTSTRAP: Final = "kafka.bootstrap.servers"
_ISOLATION: Final = "kafka.isolation.level"
_NAMES: Final = (
    "path",
    "paths",
    "log.dirs",
    _BOOTSTRAP,
    _ISOLATION,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "columns",
    "failOnDataLoss",
    "onDamage",
    "splitBytes",
    "minPartitions",
    "maxOffsetsPerTrigger",
    "maxRowsPerTrigger",
)
_OF_A_CONSUMER: Final = frozenset(
    f"kafka.{name}"
    for name in (
        "max.poll.records", "max.poll.interval.ms", "fetch.min.bytes", "fetch.max.bytes", "fetch.max.wait.ms",
        "max.partition.fetch.bytes", "receive.buffer.bytes", "send.buffer.bytes", "request.timeout.ms",
        "default.api.timeout.ms", "session.timeout.ms", "heartbeat.interval.ms", "check.crcs", "client.id", "group.id",
    )
)  # fmt: skip
"""Options for a consumer's fetching. A job that has these for the connector may keep them: nothing is fetched here."""


class OptionError(PipelineError):
    """An option has an invalid value."""


class Place(NamedTuple):
    """A position in a partition at which reading begins or ends."""

    kind: str
    number: int = 0
    """An offset, or a timestamp in ms since 1970."""


EARLIEST: Final = Place("earliest")
LATEST: Final = Place("latest")
OFFSET: Final = "offset"
TIME: Final = "time"

_SPECIAL_OFFSETS: Final = {-2: EARLIEST, -1: LATEST}


class Places(NamedTuple):
    """A position for each partition: the same for all, or one for each."""

    everywhere: Place | None
    by_partition: Mapping[TopicPartition, Place]
    option: str
    """The name of the option that gave these positions."""

    def of(self, partition: TopicPartition) -> Place:
        """The position in this partition. Raises OptionError where the option does not name the partition."""
        if self.everywhere is not None:
            return self.everywhere
        if (place := self.by_partition.get(partition)) is None:
            raise OptionError(f"{self.option} says nothing of {partition}, which is read, too: it must name them all")
        return place


class Subscription(NamedTuple):
    """The topics or partitions to read: exactly one field is set."""

    topics: Sequence[str] = ()
    pattern: str | None = None
    partitions: Sequence[TopicPartition] = ()


class Options(NamedTuple):
    """The parsed options."""

    data_dirs: Sequence[str]
    bootstrap: str | None
    subscription: Subscription
    starting: Places | None
    ending: Places | None
    latest_for_missing_times: bool
    """Whether a partition without a record as late as `startingTimestamp` begins at its end. If not, such a partition
    is an error."""
    wanted: Wanted
    fail_on_data_loss: bool
    split_bytes: int
    least_ranges: int
    most_offsets: int | None
    """The most offsets that a micro-batch takes."""


def read_options(given: Mapping[str, str]) -> Options:
    """Parse the options; their names may be in any case. Raises OptionError."""
    names = {name.lower(): name for name in _NAMES}
    values: dict[str, str] = {}
    for key, value in given.items():
        if (name := names.get(key.lower())) is not None:
            values[name] = value
        elif key.lower() not in _OF_A_CONSUMER:
            raise OptionError(f"kafka_log has no option {key!r}{_nearest(key)}")
    return _Reading(values).options()


def _nearest(key: str) -> str:
    names = {name.lower(): name for name in _NAMES}
    if not (near := difflib.get_close_matches(key.lower(), names, n=1)):
        return ""
    return f"; did you mean {names[near[0]]!r}?"


class _Reading:
    """Parses the values of options, one after the other."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def options(self) -> Options:
        data_dirs = self._data_dirs()
        subscription = self._subscription()
        starting = self._places("starting")
        ending = self._places("ending")
        if ending is not None and EARLIEST in (ending.everywhere, *ending.by_partition.values()):
            raise OptionError(f"{ending.option} cannot be earliest (-2): nothing would be read")
        strategy = self._choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
        return Options(
            data_dirs=data_dirs,
            bootstrap=self._values.get(_BOOTSTRAP),
            subscription=subscription,
            starting=starting,
            ending=ending,
            latest_for_missing_times=strategy == "latest",
            wanted=Wanted(
                columns=self._columns(),
                read_committed=self._choice(_ISOLATION, _ISOLATION_LEVELS, _ISOLATION_LEVELS[0])
                == _ISOLATION_LEVELS[1],
                skip_damaged=self._choice("onDamage", ("fail", "skip-batch"), "fail") == "skip-batch",
            ),
            fail_on_data_loss=self._flag("failOnDataLoss", True),
            split_bytes=self._number("splitBytes") or SPLIT_BYTES,
            least_ranges=self._number("minPartitions") or 1,
            most_offsets=self._most_offsets(),
        )

    def _data_dirs(self) -> Sequence[str]:
        found = [path.strip() for path in self._values.get("log.dirs", "").split(",") if path.strip()]
        if (path := self._values.get("path")) is not None:
            found.append(path)
        if "paths" in self._values:
            found += self._json("paths", lambda value: [str(path) for path in value])
        if not found:
            raise OptionError(
                "kafka_log needs the broker's data directory: load(\"/its/log.dirs\"), or option 'log.dirs'"
            )
        return tuple(dict.fromkeys(path.removeprefix("file://").rstrip("/") or "/" for path in found))

    def _subscription(self) -> Subscription:
        asked = [name for name in ("subscribe", "subscribePattern", "assign") if name in self._values]
        if len(asked) != 1:
            said = " and ".join(asked) or "none"
            raise OptionError(
                f"one of subscribe, subscribePattern and assign must say which topics are read; found {said}"
            )
        if asked == ["subscribePattern"]:
            return Subscription(pattern=self._values["subscribePattern"])
        if asked == ["assign"]:
            partitions = self._json("assign", _assigned)
            return Subscription(tuple(dict.fromkeys(one.topic for one in partitions)), partitions=partitions)
        topics = [name.strip() for name in self._values["subscribe"].split(",") if name.strip()]
        if not topics:
            raise OptionError(f"subscribe names no topic: {self._values['subscribe']!r}")
        return Subscription(tuple(dict.fromkeys(topics)))

    def _places(self, side: str) -> Places | None:
        """The positions where reading starts or ends. As in the connector, one time for all partitions wins over times
        by partition, and these win over offsets."""
        if (time_ms := self._number(f"{side}Timestamp")) is not None:
            return Places(Place(TIME, time_ms), {}, f"{side}Timestamp")
        if (option := f"{side}OffsetsByTimestamp") in self._values:
            times = self._json(option, _by_partition)
            return Places(None, {one: Place(TIME, time) for one, time in times.items()}, option)
        option = f"{side}Offsets"
        if (text := self._values.get(option)) is None:
            return None
        for everywhere in (EARLIEST, LATEST):
            if text.strip().lower() == everywhere.kind:
                return Places(everywhere, {}, option)
        offsets = self._json(option, _by_partition)
        if wrong := [f"{offset} for {one}" for one, offset in offsets.items() if offset < min(_SPECIAL_OFFSETS)]:
            raise OptionError(f"{option} says {wrong[0]}; expected an offset, -2 (earliest) or -1 (latest)")
        places = {one: _SPECIAL_OFFSETS.get(offset, Place(OFFSET, offset)) for one, offset in offsets.items()}
        return Places(None, places, option)

    def _columns(self) -> Sequence[str]:
        with_headers = self._flag("includeHeaders", False)
        if (text := self._values.get("columns")) is None:
            return COLUMNS if with_headers else COLUMNS_WITHOUT_HEADERS
        known = {name.lower(): name for name in COLUMNS}
        found = []
        for word in (part.strip() for part in text.split(",")):
            if (name := known.get(word.lower())) is None:
                raise OptionError(f"columns names {word!r}; there are {', '.join(COLUMNS)}")
            found.append(name)
        if with_headers and HEADERS not in found:
            found.append(HEADERS)
        return tuple(dict.fromkeys(found))

    def _most_offsets(self) -> int | None:
        given = [number for name in ("maxOffsetsPerTrigger", "maxRowsPerTrigger") if (number := self._number(name))]
        return min(given, default=None)

    # Kinds of values

    def _number(self, name: str) -> int | None:
        if (text := self._values.get(name)) is None:
            return None
        if not text.strip().isascii() or not text.strip().isdigit() or (name in _AT_LEAST_ONE and int(text) == 0):
            raise OptionError(
                f"{name} is {text!r}; expected a whole number{' above 0' if name in _AT_LEAST_ONE else ''}"
            )
        return int(text)

    def _flag(self, name: str, default: bool) -> bool:
        return self._choice(name, ("true", "false"), str(default).lower()) == "true"

    def _choice(self, name: str, choices: Sequence[str], default: str) -> str:
        text = self._values.get(name, default).strip().lower()
        if text not in choices:
            raise OptionError(f"{name} is {self._values[name]!r}; expected {' or '.join(choices)}")
        return text

    def _json(self, name: str, read: Callable[[Any], T]) -> T:
        try:
            return read(json.loads(self._values[name]))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            example = _EXAMPLES.get(name, _EXAMPLES[""])
            raise OptionError(f"{name} is {self._values[name]!r}; expected JSON like {example}") from error


_ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")
_AT_LEAST_ONE: Final = frozenset({"splitBytes", "minPartitions", "maxOffsetsPerTrigger", "maxRowsPerTrigger"})
_EXAMPLES: Final = {
    "assign": '{"orders": [0, 1]}',
    "paths": '["/data/1", "/data/2"]',
    "": '{"orders": {"0": 23, "1": 45}}',
}


def _by_partition(value: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): _whole(number)
        for topic, numbers in value.items()
        for partition, number in numbers.items()
    }


def _assigned(value: Any) -> tuple[TopicPartition, ...]:
    found = tuple(TopicPartition(topic, _whole(number)) for topic, numbers in value.items() for number in numbers)
    if not found:
        raise ValueError("no partition")
    return found


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value
