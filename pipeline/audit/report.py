"""The findings of an audit as one object, for JSON, for the page and for the terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.audit.check import Checked
from pipeline.audit.plan import Plan
from storage.check.findings import Finding
from storage.check.producer_check import OpenTransaction
from storage.topic_partition import TopicPartition

_COUNTED = ("damage", "notes", "segments", "batches", "bytes")


@dataclass(frozen=True, kw_only=True)
class LogChecked:
    """One partition's log."""

    topic_partition: TopicPartition
    directory: str
    start_offset: int
    end_offset: int
    latest_epoch: int
    open_transactions: Sequence[OpenTransaction]
    missing: int
    """How many offsets have no record: see `LogExtent`."""
    counts: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """The object for the JSON report."""
        return {
            "topic": self.topic_partition.topic,
            "partition": self.topic_partition.partition,
            "directory": self.directory,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "leader_epoch": self.latest_epoch,
            "open_transactions": [transaction._asdict() for transaction in self.open_transactions],
            "offsets_without_record": self.missing,
            **self.counts,
        }


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of an audit."""

    plan: Plan
    logs: Sequence[LogChecked]
    findings: Sequence[Finding]
    counts: dict[str, int]
    is_deep: bool
    bootstrap: str | None
    topics: Sequence[str] | None
    """The audited topics; None if all logs were audited."""
    finished_at: str
    """UTC, to the second."""
    seconds: float

    @property
    def is_whole(self) -> bool:
        return not self.counts["damage"]

    @property
    def missing(self) -> int:
        """How many offsets of all logs have no record."""
        return sum(log.missing for log in self.logs)

    @property
    def summary(self) -> str:
        """The result in one line."""
        counts = self.counts
        result = "whole" if self.is_whole else f"{counts['damage']} damaged"
        notes = f", {counts['notes']} to be recovered by the next start" if counts["notes"] else ""
        missing = f"; {self.missing} offsets without a record" if self.missing else ""
        return (
            f"{result}{notes}: {len(self.logs)} logs, {counts['segments']} segments, {counts['batches']} batches, "
            f"{counts['bytes']} bytes{missing}"
        )

    def to_json(self) -> dict[str, Any]:
        """The object for the JSON report."""
        return {
            "report": "audit",
            "result": "whole" if self.is_whole else "damaged",
            "cluster_id": self.plan.cluster_id,
            "data_directories": [directory.path for directory in self.plan.directories],
            "bootstrap": self.bootstrap,
            "topics": None if self.topics is None else list(self.topics),
            "deep": self.is_deep,
            "finished_at": self.finished_at,
            "seconds": round(self.seconds, 3),
            "counts": {"logs": len(self.logs), **self.counts, "offsets_without_record": self.missing},
            "findings": [finding._asdict() for finding in self.findings],
            "logs": [log.to_json() for log in self.logs],
        }


def put_together(
    plan: Plan,
    results: Iterable[Checked],
    *,
    is_deep: bool,
    bootstrap: str | None,
    topics: Sequence[str] | None,
    finished_at: str,
    seconds: float,
) -> Audit:
    """Combine the results of the tasks to one audit."""
    by_log: dict[tuple[TopicPartition, str], list[Checked]] = {}
    for checked in results:
        by_log.setdefault((checked.part.topic_partition, checked.part.directory), []).append(checked)
    logs, findings = [], list(plan.findings)
    counts = dict.fromkeys(_COUNTED, 0)
    counts["damage"] = sum(finding.kind == "damage" for finding in findings)
    counts["notes"] = len(findings) - counts["damage"]
    for (place, directory), parts in sorted(by_log.items()):
        parts.sort(key=lambda checked: checked.part.part.from_offset)
        of_log = {name: sum(checked.counts[name] for checked in parts) for name in _COUNTED}
        findings += [finding for checked in parts for finding in checked.findings]
        for name, count in of_log.items():
            counts[name] += count
        logs.append(
            LogChecked(
                topic_partition=place,
                directory=directory,
                start_offset=parts[0].extent.start_offset,
                end_offset=parts[-1].extent.end_offset,
                latest_epoch=max(checked.extent.latest_epoch for checked in parts),
                open_transactions=parts[-1].extent.open_transactions,
                missing=sum(checked.extent.missing for checked in parts),
                counts=of_log,
            )
        )
    return Audit(
        plan=plan,
        logs=logs,
        findings=findings,
        counts=counts,
        is_deep=is_deep,
        bootstrap=bootstrap,
        topics=topics,
        finished_at=finished_at,
        seconds=seconds,
    )
