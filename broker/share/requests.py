"""What members ask of a share partition and say of its records, and what follows from that."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from broker.coordinators.share.persister import StateBatch
from broker.share.in_flight import DeliveryLimit, InFlightBatch


class AcknowledgeType(IntEnum):
    """What a member says of a record (KIP-932; RENEW: KIP-1222)."""

    GAP = 0
    """There is no such record."""
    ACCEPT = 1
    RELEASE = 2
    """The record is to be delivered again."""
    REJECT = 3
    """The record is never to be delivered again."""
    RENEW = 4
    """The record stays with the member for another lock duration."""


class DeadLetterCause(IntEnum):
    """Why records go to the dead letter queue."""

    REJECTED = 0
    DELIVERED_TOO_OFTEN = 1


class AcquireMode(IntEnum):
    """How strictly MaxRecords is meant (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """Whole batches of the log, even where these have more records."""
    RECORD_LIMIT = 1
    """Not one record more."""


class Acknowledgement(NamedTuple):
    """What a member says of consecutive records."""

    first_offset: int
    last_offset: int
    """Inclusive."""
    types: Sequence[int]
    """One `AcknowledgeType` for all records, or one for each."""


class Acquisition(NamedTuple):
    """What a member wants to acquire."""

    member_id: str
    mode: AcquireMode
    batch_size: int
    """About how many records are acquired, and acknowledged later, together."""
    max_records: int


class AcquiredRecords(NamedTuple):
    """Consecutive records that were delivered to a member, for as many times."""

    first_offset: int
    last_offset: int
    delivery_count: int


class WindowTerms(NamedTuple):
    """The settings of the group, as they are now."""

    limit: DeliveryLimit
    lock_duration_ms: int
    max_records_in_flight: int
    may_renew: bool


class Change(NamedTuple):
    """A change of records that is to be persisted."""

    batch: InFlightBatch
    stored: StateBatch
    cause: DeadLetterCause | None = None
    """For records on their way to the dead letter queue."""
