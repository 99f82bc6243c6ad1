"""`ottla pipeline sql`: a query, in which each topic is a view."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Final

from pipeline.command_line import add_reading_options, add_source_options, add_spark_options
from pipeline.errors import DAMAGED, DONE, PipelineError
from pipeline.reports.files import check_places, written_atomically
from pipeline.reports.text import bytes_as_json, bytes_as_text, shown
from pipeline.session import spark_session
from pipeline.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE: Final = "table"
CSV: Final = "csv"
JSON: Final = "json"
PARQUET: Final = "parquet"

_WIDEST_COLUMN: Final = 60
_ROWS: Final = 100
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TIMESTAMP: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSX"
_OURS: Final = re.compile(r"^(?:pipeline|storage)\.[\w.]*?(\w+): (.+)$", re.MULTILINE)
"""The end of a traceback in one of Spark's Python workers."""

_PYTHONS: Final = re.compile(r"^(?:[A-Za-z_][\w.]*)?(?:Error|Exception): .+$(?=\n+ *SQLSTATE)", re.MULTILINE)

Row = Sequence[Any]


class QueryError(PipelineError):
    """Spark's error message about a query."""


class DamageMet(PipelineError):
    """A query has read damaged records."""

    exit_code = DAMAGED


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `sql`."""
    parser.add_argument(
        "query", metavar="QUERY", nargs="?",
        help="in Spark's SQL, such as: select partition, count(*) from orders group by partition; names with dots or "
        "dashes in backticks: `web.clicks`; text(value) is a value as text",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="say which views there are, and end")
    parser.add_argument("--headers", action="store_true", help="views have the records' headers, too")
    add_source_options(parser, default_topics="every topic; internal ones only if they are named")
    add_reading_options(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--format", choices=(TABLE, CSV, JSON, PARQUET),
        help="json is an object a line; default: what --output ends with, else a table",
    )  # fmt: skip
    output.add_argument(
        "--output", metavar="PATH", help="where to write to: a file, or with parquet a new directory; default: stdout"
    )
    output.add_argument(
        "--rows",
        type=int,
        default=_ROWS,
        metavar="N",
        help="how many rows a table shows at most (default: %(default)s)",
    )
    add_spark_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run the query. Returns the exit code: 0, 1 where records are damaged, 2 for a query that Spark refuses."""
    if not options.list and not options.query:
        raise PipelineError("no query was given; --list says which views there are")
    form = _form(options)
    with Source.open(options.data_dirs, options.bootstrap) as source:
        topics = source.topics(options.topics, options.topic_pattern)
        if options.list:
            for topic in topics:
                print(quoted(topic))
            return DONE
        if sys.stderr.isatty():
            # Spark's own bar: what a query does only Spark knows.
            options.spark_conf.insert(0, ("spark.ui.showConsoleProgress", "true"))
        with TemporaryDirectory() as warehouse:
            # Else Spark leaves a directory where the command was called.
            options.spark_conf.insert(0, ("spark.sql.warehouse.dir", warehouse))
            with spark_session(options, "sql") as spark, _without_traces():
                _create_views(spark, topics, options)
                _write(spark.sql(options.query), form, options)
    return DONE


def quoted(topic: str) -> str:
    """A topic's name, quoted for a query."""
    return topic if _PLAIN_NAME.match(topic) else f"`{topic.replace('`', '``')}`"


def _form(options: argparse.Namespace) -> str:
    """The output format that the options ask for. Raises PipelineError if the output cannot be written."""
    form: str | None = options.format
    if form is None:
        suffix = Path(options.output or "").suffix.removeprefix(".")
        form = {"jsonl": JSON}.get(suffix, suffix) if options.output else TABLE
        if form not in (TABLE, CSV, JSON, PARQUET):
            raise PipelineError(f"found the output {options.output!r}; --format says what is to be written there")
    if form == PARQUET:
        if options.output is None:
            raise PipelineError("parquet needs --output, a new directory")
        if Path(options.output).exists():
            raise PipelineError(f"{options.output} exists already; parquet is written to a new directory")
    if options.output is not None:
        check_places([options.output], ())
    return form


# The views ------------------------------------------------------------------------------------------------------------


def _create_views(spark: SparkSession, topics: Sequence[str], options: argparse.Namespace) -> None:
    """Create a view for each topic whose name is in the query. Views for a thousand topics would take minutes."""
    query = options.query.lower()
    meant: dict[str, str] = {}
    for topic in topics:
        name = topic.lower()
        if name.replace("`", "``") not in query:
            continue
        if name in meant:
            raise PipelineError(
                f"{meant[name]} and {topic} would be one view, for Spark's names have no case: --topics"
            )
        meant[name] = topic
    spark.sql("create or replace temporary function text(bytes binary) returns string return cast(bytes as string)")
    for topic in meant.values():
        reader = spark.read.format("kafka_log").option("paths", json.dumps(options.data_dirs))
        if options.bootstrap is not None:
            reader = reader.option("kafka.bootstrap.servers", options.bootstrap)
        reader = reader.option("subscribe", topic).option("includeHeaders", str(options.headers).lower())
        reader = reader.option("kafka.isolation.level", options.isolation).option("onDamage", options.on_damage)
        reader.load().createOrReplaceTempView(f"`{topic.replace('`', '``')}`")


@contextmanager
def _without_traces() -> Iterator[None]:
    """A context that turns Spark's errors into QueryError or DamageMet, without stack traces."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    # Spark would log the same on stderr, with a stack of two hundred lines.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _sentence_of(str(error)) from error


def _sentence_of(text: str) -> PipelineError:
    if ours := _OURS.findall(text):
        name, sentence = ours[-1]
        return DamageMet(sentence) if name == "DamagedLog" else QueryError(sentence)
    if errors := _PYTHONS.findall(text):
        return QueryError(errors[-1])
    # Spark shows the query again, or its plan, or the JVM's stack below what it has to say.
    said = re.split(r"\n\s*(?:== SQL|'|\+- |JVM stacktrace|at org\.|Traceback)|;\s*\n", text.strip(), maxsplit=1)[0]
    return QueryError(" ".join(said.split()))


# The answer -----------------------------------------------------------------------------------------------------------


def _write(answer: DataFrame, form: str, options: argparse.Namespace) -> None:
    if form == PARQUET:
        _write_parquet(answer, options.output)
        return
    names, shown_answer = _with_times_as_text(answer)
    if form == TABLE:
        rows = [tuple(row) for row in shown_answer.limit(options.rows + 1).collect()]
        text = table(names, rows[: options.rows])
        if len(rows) > options.rows:
            text += f"more than {options.rows} rows: --rows, --format\n"
        with _output(options.output) as file:
            file.write(text.encode(errors="backslashreplace"))
        return
    rows_of_answer = (tuple(row) for row in shown_answer.toLocalIterator(prefetchPartitions=True))
    with _output(options.output) as file:
        (_write_csv if form == CSV else _write_json)(file, names, rows_of_answer)


def _with_times_as_text(answer: DataFrame) -> tuple[list[str], DataFrame]:
    """The names of an answer's columns, and the answer with unique column names: a query may give two columns one name.

    Timestamps are converted to text, since Python would get them in the time zone of this machine.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import TimestampType

    columns = [f"c{number}" for number in range(len(answer.columns))]
    renamed = answer.toDF(*columns)
    chosen = [
        functions.date_format(name, _TIMESTAMP).alias(name) if isinstance(field.dataType, TimestampType)
        else functions.col(name)
        for name, field in zip(columns, answer.schema.fields, strict=True)
    ]  # fmt: skip
    return answer.columns, renamed.select(*chosen)


@contextmanager
def _output(path: str | None) -> Iterator[IO[bytes]]:
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.flush()
    else:
        with written_atomically(path) as file:
            yield file


def table(names: Sequence[str], rows: Sequence[Row]) -> str:
    """A table of text: column names and rows, numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [
        min(max(len(text) for text in (name, *(row[number] for row in cells))), _WIDEST_COLUMN)
        for number, name in enumerate(names)
    ]
    are_numbers = [
        all(row[number] is None or isinstance(row[number], int | float | Decimal) for row in rows)
        for number in range(len(names))
    ]
    lines = [names, ["-" * width for width in widths], *cells]
    text = io.StringIO()
    for line in lines:
        placed = (
            (cut.rjust if is_number else cut.ljust)(width)
            for cut, width, is_number in zip(map(_cut, line), widths, are_numbers, strict=True)
        )
        text.write("  ".join(placed).rstrip() + "\n")
    return text.getvalue()


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST_COLUMN else text[: _WIDEST_COLUMN - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes | bytearray):
        return shown(bytes_as_text(bytes(value)))
    if isinstance(value, str):
        return shown(value)
    return shown(json.dumps(_plain(value), ensure_ascii=False))


def _write_csv(file: IO[bytes], names: Sequence[str], rows: Iterator[Row]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    text.detach()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes_as_text(bytes(value))
    return value if value is None or isinstance(value, str | int | float | Decimal) else json.dumps(_plain(value))


def _write_json(file: IO[bytes], names: Sequence[str], rows: Iterator[Row]) -> None:
    keys = _different(names)
    for row in rows:
        line = {key: _plain(value) for key, value in zip(keys, row, strict=True)}
        file.write(json.dumps(line, ensure_ascii=False).encode(errors="backslashreplace") + b"\n")


def _different(names: Sequence[str]) -> list[str]:
    """Unique names: key, key -> key, key_2."""
    found: list[str] = []
    for name in names:
        different, number = name, 1
        while different in found:
            number += 1
            different = f"{name}_{number}"
        found.append(different)
    return found


def _plain(value: Any) -> Any:
    """A value as JSON can represent it."""
    if isinstance(value, bytes | bytearray):
        return bytes_as_json(bytes(value))
    if isinstance(value, tuple) and hasattr(value, "asDict"):
        return {name: _plain(each) for name, each in zip(getattr(value, "__fields__", ()), value, strict=True)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, datetime):
        # Inside of something else it comes in the time of this machine.
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _write_parquet(answer: DataFrame, path: str) -> None:
    """Write an answer as a directory of Parquet files, all or none."""
    temporary = f"{path.rstrip('/')}.{os.getpid()}.tmp"
    try:
        answer.write.parquet(f"file://{os.path.abspath(temporary)}")
        os.rename(temporary, path)
    except ConnectionError:
        raise  # it is Spark that is gone
    except OSError as error:
        raise PipelineError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
