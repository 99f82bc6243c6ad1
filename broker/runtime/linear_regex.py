"""Regular expressions of requests, in RE2's syntax: matching takes time that is linear in the text.

Kafka matches such patterns with RE2/J, and this module with RE2 itself (docs/decisions/regular-expressions.md). Neither
knows look-arounds and back references, for which there is no bound.
"""

from functools import cache
from typing import Any, Final

MOST_PATTERN_CHARACTERS: Final = 4_096
"""A longer pattern is refused: RE2 may take 80 µs and 10 KB for each character before it finds a pattern too large."""

MOST_PATTERN_BYTES: Final = 1 << 20
"""Memory of a compiled pattern with its automaton. A pattern that needs more is refused."""


class InvalidPattern(ValueError):
    """No regular expression, or one that is too large; the text says why."""


class LinearRegex:
    """A compiled pattern. It may be used in any thread; compiling and matching let other threads run."""

    __slots__ = ("_compiled",)

    def __init__(self, pattern: str) -> None:
        """Raises `InvalidPattern`."""
        if len(pattern) > MOST_PATTERN_CHARACTERS:
            raise InvalidPattern(f"a pattern of {len(pattern)} characters; at most {MOST_PATTERN_CHARACTERS}")
        # Imported with the first pattern: most brokers never get one.
        import re2

        try:
            self._compiled = re2.compile(pattern, _options())
        except re2.error as error:
            [why] = error.args
            raise InvalidPattern(_text(why)) from None
        finally:
            # The package would keep the last 128 patterns.
            re2.purge()

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        return self._compiled.fullmatch(text) is not None


@cache
def _options() -> Any:
    import re2

    options = re2.Options()
    options.max_mem = MOST_PATTERN_BYTES
    # Where groups begin and end is asked by nobody, and costs more than the match.
    options.never_capture = True
    # Otherwise RE2 itself writes refused patterns to stderr.
    options.log_errors = False
    return options


def _text(why: bytes | str) -> str:
    return why.decode(errors="replace") if isinstance(why, bytes) else why
