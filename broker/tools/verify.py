"""`ottla verify`: checks data directories of Ottla or of Apache Kafka, and changes nothing in them."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from broker.tools.directory_check import bytes_to_check, check_directories
from broker.tools.output import Entry, json_line, run_until_output_closes
from broker.tools.progress import Progress
from storage.check.findings import Finding, Findings
from storage.errors import StorageError
from storage.files import FileSystem
from storage.loading import PRODUCER_ID_EXPIRATION_MS
from storage.log_dir import lock_for_reading

WHOLE: Final = 0
DAMAGED: Final = 1
NOT_CHECKED: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ottla verify`; the exit code: 0 without damage, 1 with damage, 2 if a directory could not be checked."""
    options = _parser().parse_args(arguments)
    files = FileSystem()
    paths = list(dict.fromkeys(path.rstrip("/") or "/" for path in options.directories))
    try:
        for path in paths:
            if not files.is_directory(path):
                return _not_checked(f"{path} is no directory")
        # While these locks are held, no broker can open the directories.
        locks = [lock_for_reading(files, path) for path in paths]
        code = run_until_output_closes(
            lambda: _verify(files, paths, as_json=options.json, expiration_ms=options.producer_id_expiration_ms)
        )
        del locks
        # Without a lock file, a broker could have opened the directory meanwhile.
        for path in paths:
            lock_for_reading(files, path)
    except FileNotFoundError as error:
        return _not_checked(f"there is no {error.filename}")
    except StorageError as error:
        return _not_checked(str(error))
    return code


def _verify(files: FileSystem, paths: Sequence[str], *, as_json: bool, expiration_ms: int) -> int:
    progress = Progress(bytes_to_check(files, paths))

    def put_out(finding: Finding) -> None:
        progress.print(json_line(_entry(finding)) if as_json else str(finding))

    findings = Findings(put_out, progress.advance)
    try:
        check_directories(files, paths, findings, producer_id_expiration_ms=expiration_ms)
    finally:
        progress.close()
    print(json_line(Entry("summary", findings.counts)) if as_json else str(findings))
    return DAMAGED if findings.damages else WHOLE


def _entry(finding: Finding) -> Entry:
    return Entry(finding.kind, {name: value for name, value in finding._asdict().items() if name != "kind"})


def _not_checked(sentence: str) -> int:
    sys.stderr.write(f"ottla verify: {sentence}\n")
    return NOT_CHECKED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla verify",
        description="Check data directories that no broker works in: all of `log.dirs`, or one. Nothing is changed.",
        epilog="exit code: 0 if all is whole, also where the next start has something to recover; 1 if something is "
        "damaged; 2 for bad usage, a directory that cannot be read, or one that a broker works in",
    )
    parser.add_argument("directories", metavar="DIR", nargs="+", help="a data directory of the node")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument(
        "--producer-id-expiration-ms", metavar="MS", type=int, default=PRODUCER_ID_EXPIRATION_MS,
        help="what producer.id.expiration.ms was, if it was set in the broker's own settings (default: %(default)s)",
    )  # fmt: skip
    return parser
