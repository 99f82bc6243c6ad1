"""Archived before deleted: from which offset on a log's retention waits for the topic's archive group."""

import logging

from broker.coordinators.group_coordinator import Groups
from broker.request.faults import Fault
from protocol.schema import NO_UUID
from storage.log import Log

log = logging.getLogger(__name__)


class RetentionHold:
    """Reads the committed offsets of the groups that topics name in ``ottla.archive.group``.

    Whatever is not known for certain to be archived is held.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def held_from(self, held: Log) -> int | None:
        """Everything below is archived; None where nobody archives the topic.

        The log's start where its group has committed nothing, or nothing that can be meant of this log, and where it
        cannot be told: its partition of ``__consumer_offsets`` is loading, offline, or not there.
        """
        group = held.config.ottla_archive_group
        if not group:
            return None
        return max(self._archived_up_to(held, group), held.log_start_offset)

    def lag(self, held: Log) -> int | None:
        """How many offsets up to the high watermark are not archived; None where nobody archives the topic."""
        held_from = self.held_from(held)
        return None if held_from is None else max(held.high_watermark - held_from, 0)

    def tell_given_up(self, gone: Log) -> None:
        """Say that the last retention pass has removed of a log what is not archived."""
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
            # Where that epoch lost its end in a crash, other records have these offsets since (KIP-320).
            offset = min(offset, held.end_offset_for_epoch(committed.leader_epoch).end_offset)
        # Records that are still to be written cannot be archived: it was another log, or somebody's mistake.
        return offset if offset <= held.log_end_offset else 0
