"""`ottla dump`: shows a file or directory of a data directory, of Ottla or of Apache Kafka."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from broker.tools.directory_contents import data_directory, is_data_directory, is_partition, named_file, partition
from broker.tools.file_contents import Wanted, contents_of
from broker.tools.output import Entry, JsonOutput, TextOutput, put_out, run_until_output_closes
from storage.errors import StorageError, WrongDirectory
from storage.files import FileSystem
from storage.topic_partition import parse_dir_name

SHOWN: Final = 0
UNREADABLE: Final = 1


class NothingToShow(Exception):
    """The path exists, but is no file or directory of a data directory."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ottla dump`; the exit code: 0, also where damage was shown, 1 if the path cannot be read."""
    options = _parser().parse_args(arguments)
    output = JsonOutput() if options.json else TextOutput()

    def dump() -> int:
        try:
            put_out(
                contents(FileSystem(), options.path, from_offset=options.offset, with_records=not options.headers_only),
                output,
            )
        except FileNotFoundError as error:
            return _unreadable(f"there is no {error.filename or options.path}")
        except (StorageError, NothingToShow) as error:
            return _unreadable(str(error))
        return SHOWN

    return run_until_output_closes(dump)


def contents(files: FileSystem, path: str, *, from_offset: int = 0, with_records: bool = True) -> Iterator[Entry]:
    """All entries of ``path``. Raises FileNotFoundError, StorageError, NothingToShow."""
    path = path.rstrip("/") or "/"
    directory, _, name = files.absolute(path).rpartition("/")
    if files.is_directory(path):
        wanted = Wanted(topic=_topic_of(name), from_offset=from_offset, with_records=with_records)
        if is_data_directory(files, path):
            return data_directory(files, path, wanted)
        if is_partition(files, path):
            return partition(files, path, wanted)
        raise NothingToShow(
            f"{path} is neither a data directory nor a partition's: it has no meta.properties and no segment"
        )
    if contents_of(name) is None:
        raise NothingToShow(f"{path} has the name of no file that a data directory has")
    topic = _topic_of(directory.rpartition("/")[2])
    return named_file(files, path, Wanted(topic=topic, from_offset=from_offset, with_records=with_records))


def _topic_of(directory_name: str) -> str | None:
    try:
        return parse_dir_name(directory_name).topic_partition.topic
    except WrongDirectory:
        return None


def _unreadable(sentence: str) -> int:
    sys.stderr.write(f"ottla dump: {sentence}\n")
    return UNREADABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla dump",
        description="Show what stands in a file of a data directory, in a partition's directory, or in a whole one. "
        "Records of Kafka's own topics are decoded; the directory's name says which they are.",
        epilog="exit code: 0, also where damage was shown; 1 if PATH cannot be read; 2 for bad usage",
    )
    parser.add_argument("path", metavar="PATH", help="what to show")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--headers-only", action="store_true", help="batches without their records")
    parser.add_argument("--offset", metavar="N", type=int, default=0, help="begin with what holds this offset")
    return parser
