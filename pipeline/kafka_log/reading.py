"""The task of `kafka_log` that reads one range of offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pipeline.errors import Damage, RecordsGone
from pipeline.kafka_log.data_loss import log, report_loss
from pipeline.kafka_log.options import Options
from pipeline.reading.ranges import OffsetRange
from pipeline.reading.reader import read_range
from pipeline.reading.segment_files import list_segments


def read(one: OffsetRange, options: Options) -> Iterator[pa.RecordBatch]:
    """The records of a range, read by the options. Raises the errors of `read_range`."""
    if options.fail_on_data_loss:
        yield from read_range(one, options.wanted, _warn)
        return
    offset = one.from_offset
    columns = list(dict.fromkeys((*options.wanted.columns, "offset")))
    wanted = options.wanted._replace(columns=columns)
    while offset < one.until_offset:
        try:
            for batch in read_range(one._replace(from_offset=offset), wanted, _warn):
                offset = batch.column("offset")[-1].as_py() + 1
                yield batch.select(list(options.wanted.columns))
            return
        except RecordsGone as error:
            report_loss(str(error), fail=False)
            # Older segments go first: what has been left begins with a later one.
            left = [segment.base_offset for segment in list_segments(one.directory)]
            offset = min((base for base in left if base > offset), default=one.until_offset)


def _warn(damage: Damage) -> None:
    log.warning("kafka_log passes over damage: %s", damage)
