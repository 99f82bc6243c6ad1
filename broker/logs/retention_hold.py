"""RetentionHold: keeps records that a topic's archive group (``ottla.archive.group``) has not committed yet."""

import logging

from broker.coordinators.group_coordinator import Groups
from broker.request.faults import Fault
from protocol.schema import NO_UUID
from storage.log import Log

log = logging.getLogger(__name__)


class RetentionHold:
    """Reads the committed offsets of the groups that topics name in ``ottla.archive.group``.

    Records that may not be archived yet are held.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def held_from(self, held: Log) -> int | None:
        """The offset below which all records are archived; None for a topic without archive group.

        It is the log start offset if the group has no committed offset that fits this log, and if the offset is not
        known: the group's partition of ``__consumer_offsets`` is loading, offline, or missing.
        """
        group = held.config.ottla_archive_group
        if not group:
            return None
        return max(self._archived_up_to(held, group), held.log_start_offset)

    def lag(self, held: Log) -> int | None:
        """How many offsets up to the high watermark are not archived; None for a topic without archive group."""
        held_from = self.held_from(held)
        return None if held_from is None else max(held.high_watermark - held_from, 0)

    def log_given_up(self, gone: Log) -> None:
        """Log that the last retention pass has removed records of a log that are not archived."""
        log.warning(
            "retention: %s gives up offsets %d to %d, %d bytes that group %s has not committed: %d bytes are held "
            "behind them, and ottla.archive.max.bytes is %d",
            gone.topic_partition,
            gone.given_up.first_offset,
            gone.given_up.end_offset - 1,
            gone.given_up.size,
            gone.config.ottla_archive_group,
            gone.held.size,
            gone.config.ottla_archive_max_bytes,
        )

    def _archived_up_to(self, held: Log, group: str) -> int:
        try:
            shard = self._groups.of(group).shard
        except Fault:
            return 0
        committed = shard.image.offsets.get(group, held.topic_partition)
        if committed is None or committed.topic_id not in (NO_UUID, held.topic_id):
            return 0
        offset = committed.offset
        latest = held.leader_epochs.latest
        if committed.leader_epoch > latest:
            return 0
        if 0 <= committed.leader_epoch < latest:
            # If that epoch lost its end in a crash, other records have these offsets now (KIP-320).
            offset = min(offset, held.end_offset_for_epoch(committed.leader_epoch).end_offset)
        # An offset behind the log's end is not of this log: it was committed for another log, or by mistake.
        return offset if offset <= held.log_end_offset else 0
