"""One task of an audit: some parts of logs, checked where their files are."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pipeline.audit.plan import LogPart
from storage.check.findings import Finding, Findings
from storage.check.log_check import LogExtent, check_log
from storage.check.log_files import LogFiles
from storage.errors import StorageError
from storage.files import FileSystem

_MOST_ATTEMPTS: Final = 3
_MOST_FINDINGS: Final = 10_000
"""The most findings of one part that are kept; findings after them are only counted."""


class Checked(NamedTuple):
    """The result of checking a part of a log."""

    part: LogPart
    extent: LogExtent
    findings: Sequence[Finding]
    counts: dict[str, int]
    """Numbers by name: damage, notes, segments, batches, bytes."""


def check_parts(parts: Sequence[LogPart], with_records: bool) -> list[Checked]:
    """Check these parts, one after the other."""
    files = FileSystem()
    return [_check(files, part, with_records) for part in parts]


def _check(files: FileSystem, part: LogPart, with_records: bool) -> Checked:
    """Check a part, again if a running broker has changed its files meanwhile: retention or compaction may have removed
    files during the check."""
    for attempt in range(1, _MOST_ATTEMPTS + 1):
        before = _listing(files, part)
        checked = _check_once(files, part, with_records)
        if not checked.counts["damage"] or part.claims.live_end is None:
            break
        after = _listing(files, part)
        if not after or before == after or attempt == _MOST_ATTEMPTS:
            break
    return checked


def _check_once(files: FileSystem, part: LogPart, with_records: bool) -> Checked:
    found: list[Finding] = []

    def put_out(finding: Finding) -> None:
        if len(found) < _MOST_FINDINGS:
            found.append(finding)

    findings = Findings(put_out, lambda size: None)
    extent = LogExtent(start_offset=0, end_offset=0, latest_epoch=-1)
    try:
        extent = check_log(
            files, part.directory, part.claims, findings, part=part.part, with_records=with_records, with_keys=False
        )
    except FileNotFoundError as error:
        if part.claims.live_end is None or files.exists(part.directory):
            findings.damage(str(error.filename), "no file", "one that can be read")
    except StorageError as error:
        findings.damage(part.directory, str(error), "files that can be read")
    return Checked(part, extent, found, findings.counts)


def _listing(files: FileSystem, part: LogPart) -> dict[str, int]:
    """The part's files and their sizes, without the last segment, which grows."""
    try:
        log = LogFiles.found_in(files, part.directory)
    except FileNotFoundError:
        return {}
    last = f"{log.segment_bases[-1]:020d}" if log.segment_bases else ""
    return {name: size for name, size in log.sizes.items() if not name.startswith(last)}
