"""`format("kafka_log")` as Spark knows it: the classes that it pickles, which hand over to `pipeline.kafka_log`.

Their attributes and the tasks' arguments are text and bytes, so Spark unpickles them where our packages are missing.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_ottla.packages import our_packages

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.kafka_log.options import Options
    from pipeline.kafka_log.stream import Stream
    from pipeline.reading.ranges import OffsetRange

NAME: Final = "kafka_log"

Offsets = dict[str, dict[str, int]]


class KafkaLogSource(DataSource):
    """A data source of topics, read out of the segment files of a broker on this machine or on a file system that all
    workers see."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)
        """The options, by their names in lower case."""

    @classmethod
    def name(cls) -> str:
        """The data source's name, as in `format(...)`."""
        return NAME

    def schema(self) -> str:
        """The columns that the options select, as DDL."""
        with our_packages():
            from pipeline.schema import spark_schema

            return spark_schema(_options(self._given).wanted.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch read."""
        self._check(schema)
        return KafkaLogReader(self._given)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming read."""
        self._check(schema)
        return KafkaLogStreamReader(self._given)

    def _check(self, schema: StructType) -> None:
        with our_packages():
            from pipeline.kafka_log.options import OptionError

            wanted = list(_options(self._given).wanted.columns)
            if schema.fieldNames() != wanted:
                raise OptionError(
                    f"kafka_log has a schema of its own ({', '.join(wanted)}) and takes none; "
                    "its option 'columns' chooses among them"
                )


class KafkaLogReader(DataSourceReader):
    """A batch read."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def partitions(self) -> Sequence[InputPartition]:
        """A range of offsets for each task."""
        with our_packages():
            from pipeline.kafka_log.batch import plan

            return _packed(plan(_options(self._given)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task's range."""
        return _read(partition, self._given)


class KafkaLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._stream: Stream | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A task needs the options only.
        return {"_given": self._given, "_stream": None}

    def initialOffset(self) -> Offsets:
        """Where a new query begins."""
        with our_packages():
            return self._opened().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The maximum size of a micro-batch, from the options."""
        with our_packages():
            most = _options(self._given).most_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The end of the next micro-batch."""
        with our_packages():
            return self._opened().latest_offset(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> Offsets:
        """The current ends of the topics."""
        with our_packages():
            return self._opened().newest_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end at the current ends of the topics."""
        with our_packages():
            self._opened().stop_at_the_end_of_now()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """A range of offsets for each task of a micro-batch."""
        with our_packages():
            return _packed(self._opened().ranges(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task's range."""
        return _read(partition, self._given)

    def stop(self) -> None:
        """Release the data directories: the query has ended."""
        if self._stream is not None:
            with our_packages():
                self._stream.close()

    def _opened(self) -> Stream:
        if self._stream is None:
            from pipeline.kafka_log.stream import Stream

            self._stream = Stream(_options(self._given))
        return self._stream


def _options(given: Mapping[str, str]) -> Options:
    from pipeline.kafka_log.options import read_options

    return read_options(given)


def _packed(ranges: Sequence[OffsetRange]) -> list[InputPartition]:
    return [InputPartition(pickle.dumps(one)) for one in ranges]


def _read(partition: InputPartition, given: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    if partition.value is None:
        return  # what Spark puts in the place of no partitions at all
    with our_packages():
        from pipeline.kafka_log.reading import read

        yield from read(pickle.loads(partition.value), _options(given))  # noqa: S301
