"""The catalogue of all workloads and of the tables that show them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.side_by_side import client_workloads, group_workloads, life_workloads, raw_workloads, transaction_workloads
from bench.side_by_side.workload import Workload

WORKLOADS: Final[Mapping[str, Workload]] = {
    workload.name: workload
    for part in (raw_workloads, client_workloads, group_workloads, transaction_workloads, life_workloads)
    for workload in part.workloads()
}

SYSTEM_TITLE: Final = "Defaults, under the system's own congestion control"

EQUAL_SETTINGS: Final[Mapping[str, str]] = {
    # Sockets: the system's own tuning, which is our default; Kafka's are 102,400 bytes.
    "socket.send.buffer.bytes": "-1",
    "socket.receive.buffer.bytes": "-1",
    "socket.request.max.bytes": "104857600",
    # Durability: Kafka's defaults, and ours.
    "log.flush.interval.messages": "9223372036854775807",
    "log.flush.scheduler.interval.ms": "9223372036854775807",
    "log.flush.offset.checkpoint.interval.ms": "60000",
    "min.insync.replicas": "1",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the same loads under one congestion control and one set of settings."""

    key: str
    title: str
    congestion: str
    settings: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = False
    """Whether the table has all workloads; else only those whose figures depend on the sockets."""
    has_targets: bool = True
    """Whether our targets against Apache Kafka apply to this table."""

    def workloads(self, chosen: Iterable[Workload]) -> list[Workload]:
        return [workload for workload in chosen if self.is_whole or workload.is_of_sockets]


def tables(system: str, others: Sequence[str], *, can_change: bool) -> list[Table]:
    """The tables that can be measured: ``system`` is the congestion control, ``others`` are available too, and can be
    set if ``can_change``."""
    found = [Table("system", f"{SYSTEM_TITLE} ({system})", system, is_whole=True)]
    if can_change:
        found += [
            Table(name, f"Defaults, under {name}", name)
            for name in ("cubic", "bbr")
            if name != system and name in others
        ]
    # Only under cubic do both use the same one: under bbr ours chooses another for answers over loopback.
    equal = "cubic" if can_change and "cubic" in others else system
    title = f"Every setting of sockets and durability equal, under {equal}"
    found.append(Table("equal", title, equal, EQUAL_SETTINGS, has_targets=False))
    return found


def chosen(only: Sequence[str], *, has_java: bool) -> list[Workload]:
    """The workloads whose names begin with one of the prefixes ``only``; all if ``only`` is empty."""
    return [
        workload
        for name, workload in WORKLOADS.items()
        if (has_java or not workload.needs_java) and (not only or any(name.startswith(wanted) for wanted in only))
    ]


def measurable(workloads: Iterable[Workload], served: Collection[int]) -> list[Workload]:
    """The workloads that need no API but those ``served``."""
    return [workload for workload in workloads if workload.needs <= frozenset(served)]
