"""The columns of a record: those of Spark's own Kafka source, so that either source may replace the other.

key            binary      null where the record has none
value          binary      null: a tombstone
topic          string
partition      int
offset         long
timestamp      timestamp   of the record, or of the append where the topic says LogAppendTime; to the millisecond
timestampType  int         0 CreateTime, 1 LogAppendTime
headers        array of {key string, value binary}, null where there are none; only if the headers are requested
"""

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

HEADERS: Final = "headers"

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_FIELDS: Final = {
    "key": (pa.binary(), "binary"),
    "value": (pa.binary(), "binary"),
    "topic": (pa.string(), "string"),
    "partition": (pa.int32(), "int"),
    "offset": (pa.int64(), "bigint"),
    "timestamp": (pa.timestamp("us", tz="UTC"), "timestamp"),
    "timestampType": (pa.int32(), "int"),
    HEADERS: (pa.list_(_HEADER), "array<struct<key: string, value: binary>>"),
}

COLUMNS: Final = tuple(_FIELDS)
"""The names of all columns, in order."""
COLUMNS_WITHOUT_HEADERS: Final = tuple(name for name in COLUMNS if name != HEADERS)


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """The Arrow schema of these columns."""
    return pa.schema([pa.field(name, _FIELDS[name][0]) for name in columns])


def spark_schema(columns: Iterable[str]) -> str:
    """The Spark schema of these columns, as DDL text."""
    return ", ".join(f"`{name}` {_FIELDS[name][1]}" for name in columns)
