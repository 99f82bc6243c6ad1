"""Reporting records that were deleted before they were read: by an error or, by option, a warning."""

from __future__ import annotations

import logging
from typing import Final

from pipeline.errors import RecordsGone

log: Final = logging.getLogger("kafka_log")


def report_loss(text: str, *, fail: bool) -> None:
    """Raise RecordsGone with this text, or log it as a warning."""
    if fail:
        raise RecordsGone(f"{text} (failOnDataLoss=false goes on without them)")
    log.warning("kafka_log: %s", text)
