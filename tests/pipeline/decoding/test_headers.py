"""The headers of many batches at once are those that are read one by one."""

from pipeline.decoding.headers import Headers, joined, read_headers, whole_headers
from storage.batch.record_batch import LAYOUT, read_header
from tests.support.batches import changed, stored

BATCHES = [
    stored(3, offset=7, leader_epoch=2, producer_id=2**40, producer_epoch=300, base_sequence=70_000),
    bytes(changed(stored(1, offset=2**40), attributes=-1, last_offset_delta=-2, max_timestamp=-1, record_count=-3)),
    stored(1, offset=2**40 + 1),
]
DATA = b"..." + b"".join(BATCHES)
POSITIONS = [3, 3 + len(BATCHES[0]), 3 + len(BATCHES[0]) + len(BATCHES[1])]


def test_all_fields_of_all_headers_are_read_at_once() -> None:
    headers = whole_headers(DATA, POSITIONS)

    assert headers.dtype.names == tuple(LAYOUT)
    assert headers.tolist() == [tuple(read_header(batch)) for batch in BATCHES]


def test_the_columns_are_as_wide_as_a_number_may_be() -> None:
    headers = read_headers(DATA, POSITIONS)

    assert {column.dtype.str for column in headers} == {"<i8"}
    for name in Headers._fields:
        assert getattr(headers, name).tolist() == [getattr(read_header(batch), name) for batch in BATCHES]


def test_no_headers_are_read_where_there_are_none() -> None:
    assert len(read_headers(b"", []).base_offset) == 0
    assert joined([read_headers(DATA, POSITIONS), read_headers(DATA, [])]).record_count.tolist() == [3, -3, 1]
