"""The broker's loggers and their levels under Kafka's names (KIP-412)."""

import logging
from collections.abc import Iterator, Mapping
from typing import Final

ROOT: Final = "root"

_TRACE: Final = 5
DECISIONS: Final = "kafka.authorizer.logger"
"""Kafka's name for the log of what was denied to clients, or allowed; it is there where there is an authorizer."""
_ROOMS: Final = ("broker", "config", "protocol", "storage")
_LEVELS: Final = {
    _TRACE: "TRACE",
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}
LEVELS: Final = tuple(_LEVELS.values())
"""All levels, the most verbose first. No logger here has lines at TRACE that it does not have at DEBUG."""


def levels() -> Iterator[tuple[str, str]]:
    """Every logger of the broker with its effective level, the root first and the others by name."""
    yield ROOT, _kafka_level(logging.getLogger())
    for name in sorted(logging.root.manager.loggerDict):
        if is_known(name):
            yield name, _kafka_level(logging.getLogger(name))


def is_known(name: str) -> bool:
    """Whether the broker has a logger of this name."""
    if name == ROOT:
        return True
    return name in logging.root.manager.loggerDict and (name == DECISIONS or name.partition(".")[0] in _ROOMS)


def set_level(name: str, level: str) -> None:
    """Set the level of a logger, one of `LEVELS`, until the process ends."""
    number = next(number for number, known in _LEVELS.items() if known == level)
    _logger(name).setLevel(number)


def unset_level(name: str) -> None:
    """Let a logger, which is not the root, inherit the level of its parent."""
    _logger(name).setLevel(logging.NOTSET)


def own_levels() -> dict[str, int]:
    """The levels of the broker's loggers that do not inherit theirs, the root among them."""
    names = [ROOT, *filter(is_known, logging.root.manager.loggerDict)]
    return {name: level for name in names if (level := _logger(name).level) != logging.NOTSET}


def restore_levels(levels: Mapping[str, int]) -> None:
    """Let the loggers have the levels that `own_levels` has returned; loggers that are new inherit theirs."""
    for name in own_levels().keys() | levels:
        _logger(name).setLevel(levels.get(name, logging.NOTSET))


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _kafka_level(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return next((name for level, name in sorted(_LEVELS.items()) if effective <= level), "FATAL")
