"""Output of the tools: lines of text for people, or one JSON object a line.

In JSON every entry has all its fields, under the same names. Bytes are text where they are UTF-8, and
``{"base64": "..."}`` where they are not. In text, fields that are false or -1 are left out, numbers are aligned,
times are written out (UTC), and bytes that are no UTF-8 follow the word ``base64:``.
"""

import base64
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from protocol.schema import ArrayOf, Fixed, Sized, StructOf, WireType, layout
from storage.checkpoints import format_id

_WIDEST_COLUMN: Final = 40
_LARGE_NUMBERS: Final = frozenset({"offset", "base_offset", "last_offset", "position", "size"})
_LARGE_NUMBER: Final = 7
"""Digits for which a number's column is wide enough from the first line on."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UUID: Final = Fixed("16s")


class Entry(NamedTuple):
    """An entry of the output: a batch, a record, a finding, …"""

    kind: str
    fields: Mapping[str, Any]
    depth: int = 0
    """How deep the entry is nested in other entries, for indentation."""


class Output(Protocol):
    """Writes entries to stdout."""

    def write(self, entry: Entry) -> None:
        """Write one entry. Raises BrokenPipeError."""


class JsonOutput:
    """Writes entries as JSON, one object a line."""

    def write(self, entry: Entry) -> None:
        """Print an entry."""
        print(json_line(entry))


class TextOutput:
    """Writes an entry a line, its values aligned below those of the entry before."""

    def __init__(self) -> None:
        self._widths: dict[tuple[str, str], int] = {}

    def write(self, entry: Entry) -> None:
        """Print an entry. Columns only become wider, since later entries are not known."""
        words = [f"{'  ' * entry.depth}{entry.kind}"]
        for name, value in entry.fields.items():
            says_nothing = value is False or (value == -1 and value is not True)
            text = "" if says_nothing else name if value is True else f"{name} {_as_text(name, value)}"
            column = (entry.kind, name)
            least = len(name) + 1 + _LARGE_NUMBER if text and name in _LARGE_NUMBERS else 0
            width = max(self._widths.get(column, least), min(len(text), _WIDEST_COLUMN))
            self._widths[column] = width
            if text and isinstance(value, int) and value is not True:
                # The field's name is left-aligned, its number right-aligned.
                text = f"{name} {text[len(name) + 1 :]:>{width - len(name) - 1}}"
            if width:
                words.append(f"{text:{width}}")
        print("  ".join(words).rstrip())


def json_line(entry: Entry) -> str:
    """An entry as a JSON object, its kind under "type"."""
    return _as_json({"type": entry.kind, **entry.fields}, (",", ":"))


def bytes_or_text(value: bytes) -> str | dict[str, str]:
    """Bytes as JSON has them: text if they are UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def fields_of(message: object, version: int) -> dict[str, Any]:
    """A declared message, or a struct in one, as a dictionary of the fields that ``version`` has; ids as Kafka writes
    them in text."""
    return {
        field.name: _value_of(field.wire_type, getattr(message, field.name), version)
        for field in layout(type(message))
        if field.is_in(version)
    }


def _value_of(wire_type: WireType, value: Any, version: int) -> Any:
    match wire_type:
        case _ if value is None:
            return None
        case StructOf():
            return fields_of(value, version)
        case ArrayOf(element):
            return [_value_of(element, item, version) for item in value]
        case Sized.BYTES:
            return bytes(value)
        case _:
            return format_id(bytes(value)) if wire_type == _UUID else value


def _as_json(value: object, separators: tuple[str, str]) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=separators, default=bytes_or_text)
    # No name and no record moves a terminal's cursor.
    return text if text.isprintable() else json.dumps(value, separators=separators, default=bytes_or_text)


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        shown = bytes_or_text(value)
        return _as_json(shown, (", ", ": ")) if isinstance(shown, str) else f"base64:{shown['base64']}"
    if isinstance(value, str):
        return value if value.isprintable() else _as_json(value, (", ", ": "))
    if name == "crc":
        return f"{value:08x}"
    if isinstance(value, int) and name.endswith(("timestamp", "timestamp_ms", "delete_horizon")):
        return as_time(value)
    return _as_json(value, (", ", ": "))


def as_time(timestamp_ms: int) -> str:
    """A time for people; the bare number where no calendar has it."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def put_out(entries: Iterable[Entry], output: Output) -> None:
    """Write all entries."""
    for entry in entries:
        output.write(entry)


def run_until_output_closes(work: Callable[[], int]) -> int:
    """Do the work of a command, which prints. A reader of its output may stop early (`| head`): that is no error.

    Returns the result of ``work``, or 0 if the reader has stopped early.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = work()
        sys.stdout.flush()
    except BrokenPipeError:
        # The rest of the buffer must be written somewhere when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
