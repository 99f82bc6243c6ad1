"""The names of a log's files."""

from typing import Final

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
"""Follows the names of a segment's files while the cleaner writes them."""
SWAP_SUFFIX: Final = ".swap"
"""Follows the names of a cleaned segment's files until the segments that it replaces are out of use."""
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

_DIGITS: Final = 20
_MOST_OFFSET: Final = (1 << 63) - 1


def file_name(offset: int, suffix: str) -> str:
    """The name of a segment's or a snapshot's file: twenty digits and a suffix."""
    return f"{offset:020d}{suffix}"


def offset_in(name: str, suffix: str) -> int | None:
    """The offset in the name of a file with this suffix; None if it is no name that `file_name` gives."""
    digits = name.removesuffix(suffix)
    if len(digits) != _DIGITS or len(name) != _DIGITS + len(suffix) or not (digits.isascii() and digits.isdigit()):
        return None
    offset = int(digits)
    return offset if offset <= _MOST_OFFSET else None


def as_text(path: str) -> str:
    """A path that can be encoded: bytes that are no UTF-8, which Python keeps as lone surrogates, are escaped."""
    return path if path.isascii() else path.encode("utf-8", "backslashreplace").decode()
