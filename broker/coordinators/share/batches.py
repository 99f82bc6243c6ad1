"""Merging of state batches: what is stored of a share partition, and what its leader has written since."""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from broker.coordinators.share.persister import NO_START_OFFSET, StateBatch

_Priority = tuple[int, int]
"""Delivery count, then delivery state: where batches overlap, the greatest wins."""

_OFFSET: Final = itemgetter(0)


def combine(stored: Sequence[StateBatch], written: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches of both, sorted and without overlap, and nothing below ``start_offset``.

    Of an offset the highest delivery count is kept, and of equal counts the highest state: states of a record only rise
    between two deliveries. Neighbours that are equal become one batch. The batches must not be empty.
    """
    batches = _cut((*stored, *written), start_offset)
    if len(batches) < 2:
        return tuple(batches)
    edges: list[tuple[int, int, _Priority]] = []
    for batch in batches:
        priority = batch.delivery_count, batch.delivery_state
        edges.append((batch.first_offset, 1, priority))
        edges.append((batch.last_offset + 1, -1, priority))
    edges.sort(key=_OFFSET)
    combined: list[StateBatch] = []
    covering: Counter[_Priority] = Counter()
    """How many batches of each priority the offset is in."""
    since = 0
    for offset, change, priority in edges:
        if covering and offset > since:
            _append(combined, since, offset - 1, max(covering))
        covering[priority] += change
        if not covering[priority]:
            del covering[priority]
        since = offset
    return tuple(combined)


def _cut(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    if start_offset == NO_START_OFFSET:
        return list(batches)
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def _append(combined: list[StateBatch], first: int, last: int, priority: _Priority) -> None:
    count, state = priority
    if combined:
        before = combined[-1]
        if before.last_offset + 1 == first and (before.delivery_count, before.delivery_state) == priority:
            combined[-1] = before._replace(last_offset=last)
            return
    combined.append(StateBatch(first, last, state, count))
