"""The daemon's loggers under Kafka's names for their levels (KIP-412)."""

import logging
from collections.abc import Iterator
from typing import Final

ROOT: Final = "root"

_ROOMS: Final = ("broker", "config", "protocol", "storage")
_LEVELS: Final = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}


def levels() -> Iterator[tuple[str, str]]:
    """Every logger of ours with the level in force, the root first and the others by name."""
    yield ROOT, _kafka_level(logging.getLogger())
    for name in sorted(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _ROOMS:
            yield name, _kafka_level(logging.getLogger(name))


def _kafka_level(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return next((name for level, name in sorted(_LEVELS.items()) if effective <= level), "FATAL")
