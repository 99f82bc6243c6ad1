"""An archive as a Delta Lake table: `DEST/_delta`, where every file of rows that the manifest names has a second name.

    1  _delta/topic=.../*.rows     second names of what the manifest names anew    no version of the table knows of them
    2  _delta/_delta_log/N.json    the next version: what the manifest names
    3  second names are removed that no version younger than a week has

The manifest is published first: a run that finds the table behind the manifest repeats these steps. Since a second name
keeps a file that compaction has replaced in the archive, readers of an older version of the table go on.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pipeline.archive.durable import Unwritable, make_directory, remove, sync, sync_directory, writing
from pipeline.archive.manifest import DELTA, Manifest, RowsFile
from pipeline.archive.places import BOOKS, DATE, DELTA_LOG, DELTA_TABLE, LOCK, TOPIC
from pipeline.errors import DAMAGED, PipelineError
from pipeline.requirements import require_delta
from pipeline.schema import COLUMNS, arrow_schema

_SUFFIX: Final = ".rows"
"""Not `.parquet`: some readers read all Parquet files below a directory, and would find each row twice."""
_PROTOCOL: Final = (1, 2)
"""The lowest Delta protocol versions for readers and writers."""
_LAST_CHECKPOINT: Final = "_last_checkpoint"
_REMEDY: Final = "remove it, and the next run makes it anew: the archive does not need it"


class StrangeTable(PipelineError):
    """The Delta table cannot be read, or another program has written to it."""

    exit_code = DAMAGED


class TableFile(NamedTuple):
    """A file of the table, as the Delta log describes it."""

    bytes: int
    rows: int
    values: tuple[str, ...]
    """The values of the partition columns."""


class Table(NamedTuple):
    """The Delta table at its last version."""

    delta: Any
    follows: int
    """The version of the manifest from which this version of the table was made."""
    files: Mapping[str, TableFile]
    """The files of the table, by path."""


def require_possible(dest: Path) -> None:
    """Check that a Delta table can be kept. Raises Missing without the library, Unwritable where the file system has no
    hard links."""
    require_delta()
    probe = dest / BOOKS / "probe"
    try:
        probe.unlink(missing_ok=True)
        probe.hardlink_to(dest / LOCK)
        probe.unlink()
    except OSError as error:
        raise Unwritable(
            f"a Delta table needs second names (hard links) for files, which {dest} does not take: {error.strerror}"
        ) from error


def follow(dest: Path, manifest: Manifest, at: Callable[[str], None]) -> None:
    """Add a version to the Delta table that names the files of the manifest. Does nothing if the archive is not kept as
    a Delta table.

    The caller holds the lock, and every file is in its final place. Raises StrangeTable, Missing, Unwritable.
    """
    if manifest.table_format != DELTA:
        return
    table = read_table(dest, manifest)
    published = published_files(manifest)
    named = table.files if table is not None else {}
    new = {path: published[path] for path in sorted(published.keys() - named.keys())}
    gone = sorted(named.keys() - published.keys())
    if table is not None and not new and not gone:
        return
    make_directory(dest / DELTA_LOG)
    _give_second_names(dest, new)
    at("delta files linked")
    with _written_by_delta(dest):
        delta = _commit(dest, manifest, table, new, gone)
        old = delta.vacuum(full=True)  # says what may go, and leaves it there
    at("delta committed")
    for path in old:
        remove(dest / DELTA_TABLE / path)
    at("delta files removed")


def read_table(dest: Path, manifest: Manifest) -> Table | None:
    """The Delta table; None if it has no version yet. Raises StrangeTable, Missing."""
    require_delta()
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError

    if not any((dest / DELTA_LOG).glob("*.json")):
        return None
    try:
        delta = DeltaTable(dest / DELTA_TABLE)
        added = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    except DeltaError as error:
        raise StrangeTable(f"{dest / DELTA_TABLE} cannot be read ({_first_line(error)}); {_REMEDY}") from error
    is_own = (
        delta.protocol()[:2] == _PROTOCOL
        and delta.schema() == Schema.from_arrow(_schema(manifest))
        and delta.metadata().partition_columns == list(manifest.partition_by)
        and all(one["path"].endswith(_SUFFIX) for one in added)
    )
    if not is_own:
        raise StrangeTable(f"another program has written to {dest / DELTA_TABLE}; {_REMEDY}")
    values = [f"partition.{column}" for column in manifest.partition_by]
    files = {
        one["path"]: TableFile(one["size_bytes"], one["num_records"], tuple(one[value] for value in values))
        for one in added
    }
    return Table(delta, delta.transaction_version(manifest.group) or 0, files)


def published_files(manifest: Manifest) -> dict[str, RowsFile]:
    """The manifest's files with rows, by their paths in the Delta table."""
    return {file.path.removesuffix(".parquet") + _SUFFIX: file for file in manifest.files}


def table_file(manifest: Manifest, file: RowsFile) -> TableFile:
    """The entry that the Delta table has for a file of the manifest."""
    return TableFile(file.bytes, file.rows, tuple(_values(manifest, file).values()))


def _values(manifest: Manifest, file: RowsFile) -> dict[str, str]:
    values = {TOPIC: file.topic, DATE: file.date or ""}
    return {column: values[column] for column in manifest.partition_by}


def _schema(manifest: Manifest) -> pa.Schema:
    schema = arrow_schema(COLUMNS)
    # As text: a record may have any time, and a year of five digits makes a table with a column of dates unreadable.
    return schema.append(pa.field(DATE, pa.string())) if DATE in manifest.partition_by else schema


def _commit(
    dest: Path, manifest: Manifest, table: Table | None, new: Mapping[str, RowsFile], gone: Sequence[str]
) -> Any:
    """Add a version to the table, with new files and removed files."""
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import (
        AddAction,
        CommitProperties,
        RemoveAction,
        Transaction,
        create_table_with_add_actions,
    )

    now_ms = time.time_ns() // 1_000_000
    # Only compaction lets files go, and puts the same rows into others: who follows the table has them already.
    has_new_rows = not gone
    actions: list[Any] = []
    for path, file in new.items():
        modified_ms = (dest / DELTA_TABLE / path).stat().st_mtime_ns // 1_000_000
        actions.append(
            AddAction(path, file.bytes, _values(manifest, file), modified_ms, has_new_rows, _statistics(file))
        )
    schema, partition_by = _schema(manifest), list(manifest.partition_by)
    properties = CommitProperties(app_transactions=[Transaction(manifest.group, manifest.version, now_ms)])
    if table is None:
        create_table_with_add_actions(
            str(dest / DELTA_TABLE), Schema.from_arrow(schema), actions, partition_by=partition_by,
            name=manifest.name, configuration={"delta.appendOnly": "true"}, commit_properties=properties,
        )  # fmt: skip
        return DeltaTable(dest / DELTA_TABLE)
    actions += [RemoveAction(path, has_new_rows, now_ms) for path in gone]
    table.delta.create_write_transaction(
        actions, mode="append", schema=schema, partition_by=partition_by, commit_properties=properties
    )
    table.delta.update_incremental()
    return table.delta


def _statistics(file: RowsFile) -> str:
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": {"partition": file.partition, "offset": file.first_offset},
            "maxValues": {"partition": file.partition, "offset": file.last_offset},
            "nullCount": {"partition": 0, "offset": 0},
        }
    )


def _give_second_names(dest: Path, new: Mapping[str, RowsFile]) -> None:
    names = {dest / DELTA_TABLE / path: dest / file.path for path, file in new.items()}
    for name, file in names.items():
        make_directory(name.parent)
        with writing(name):
            # Who was killed before it was in a version has left it.
            name.unlink(missing_ok=True)
            name.hardlink_to(file)
    for directory in {name.parent for name in names}:
        with writing(directory):
            sync_directory(directory)


@contextmanager
def _written_by_delta(dest: Path) -> Iterator[None]:
    """A context that turns errors of delta-rs into Unwritable, and syncs the files that delta-rs has added to the Delta
    log."""
    from deltalake.exceptions import DeltaError

    log = dest / DELTA_LOG
    before = set(os.listdir(log)) - {_LAST_CHECKPOINT}
    try:
        yield
    except (DeltaError, OSError) as error:
        raise Unwritable(f"cannot write to {dest / DELTA_TABLE}: {_first_line(error)}") from error
    with writing(log):
        for name in set(os.listdir(log)) - before:
            sync(log / name)
        sync_directory(log)


def _first_line(error: Exception) -> str:
    """The first line of an error of delta-rs. The lines after it are positions in the source of delta-rs."""
    return str(error).partition("\n")[0]
