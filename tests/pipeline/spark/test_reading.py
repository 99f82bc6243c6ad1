"""A task of `kafka_log` under which segments are deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not here")

from pipeline.errors import RecordsGone
from pipeline.kafka_log.options import read_options
from pipeline.kafka_log.reading import read
from pipeline.reading.ranges import OffsetRange
from storage.batch.record_batch import stamp
from storage.batch.records import Record, encode_batch

GIVEN = {"path": "/data", "subscribe": "orders", "columns": "value"}


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Three segments with ten records each."""
    for base in (0, 10, 20):
        batch = encode_batch([Record(timestamp=1, value=b"%d" % (base + n)) for n in range(10)])
        stamp(batch, base, 0)
        (tmp_path / f"{base:020}.log").write_bytes(batch)
    return tmp_path


def values(partition: Path, until: int = 30, **options: str) -> list[int]:
    one = OffsetRange("orders", 0, str(partition), 5, until)
    found = []
    for batch in read(one, read_options(GIVEN | options)):
        assert batch.schema.names == ["value"]
        found += [int(value) for value in batch.column("value").to_pylist()]
    return found


def test_all_is_there(partition: Path) -> None:
    assert values(partition) == values(partition, failOnDataLoss="false") == list(range(5, 30))


def test_the_first_segment_is_gone(partition: Path, caplog: pytest.LogCaptureFixture) -> None:
    (partition / f"{0:020}.log").unlink()
    with pytest.raises(RecordsGone, match="records from offset 5 to 30 were to be read"):
        values(partition)
    assert values(partition, failOnDataLoss="false") == list(range(10, 30))
    assert "records from offset 5 to 30 were to be read" in caplog.text


def test_all_of_it_is_gone(partition: Path) -> None:
    for path in partition.iterdir():
        path.unlink()
    assert values(partition, failOnDataLoss="false") == []


def test_its_end_is_gone(partition: Path) -> None:
    with pytest.raises(RecordsGone):
        values(partition, until=40)
    assert values(partition, until=40, failOnDataLoss="false") == list(range(5, 30))
