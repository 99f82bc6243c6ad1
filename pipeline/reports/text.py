"""Numbers, times and bytes as text for people."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING: Final = "\u2013"
_UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")


def bytes_text(size: float) -> str:
    """A size in bytes: 1536 -> 1.5 KB."""
    number = float(size)
    for unit in _UNITS:
        if abs(number) < 1000 or unit == _UNITS[-1]:
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" or number >= 99.95 else f"{number:.1f} {unit}"


def count_text(count: float) -> str:
    """A count with thin spaces that do not break: 1234567 -> 1,234,567."""
    return f"{count:,.0f}".replace(",", "\u202f")


def ratio_text(ratio: float | None) -> str:
    """A ratio: 2.345 -> 2.3; empty for None."""
    return _NOTHING if ratio is None else f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"


def percent_text(share: float) -> str:
    """A share in per cent: 0.1234 -> 12 %."""
    percent = share * 100
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.1f} %" if percent >= 0.1 else "< 0.1 %"


def time_text(timestamp_ms: int | None) -> str:
    """A time in UTC, to the second; the number itself where no calendar has the time."""
    if timestamp_ms is None or timestamp_ms < 0:
        return _NOTHING
    try:
        return f"{_EPOCH + timedelta(milliseconds=timestamp_ms):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return str(timestamp_ms)


def shown(text: str) -> str:
    """Text with invisible characters and changes of the writing direction escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def bytes_as_json(value: bytes) -> str | dict[str, str]:
    """Bytes for JSON: as text if they are UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def bytes_as_text(value: bytes) -> str:
    """Bytes in one line: as text if they are UTF-8, else as hexadecimal digits behind 0x."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
