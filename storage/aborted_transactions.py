"""The aborted transactions in what a fetch has read, from the transaction indexes of a log's segments.

Before it is used for the first time, an index that was found at start is compared with the markers it names. A wrong
index is made anew from the batches.
"""

from storage.batch.record_batch import HEADER_SIZE, read_header
from storage.errors import CorruptIndex
from storage.files import FileRegion
from storage.index.transaction_index import AbortedTransaction, TransactionIndex
from storage.producer_snapshots import ProducerSnapshots
from storage.recovery import transactions_anew
from storage.segment import Segment
from storage.segments import Segments


def aborted_in(
    segments: Segments, snapshots: ProducerSnapshots, fetch_offset: int, region: FileRegion, log_end_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions that have records in ``region``, which a read at ``fetch_offset`` gave, or a few more.

    A marker stands behind its transaction's records, at times in a later segment. So segments are walked until a
    marker is met behind which nothing undecided reaches back into the region.
    """
    if not any(segment.transaction_index for segment in segments.from_offset(fetch_offset)):
        return []
    segment = segments.at(fetch_offset)
    while (following := segments.after(segment)) is not None and segment.locate(fetch_offset) is None:
        segment = following
    beyond = segment.first_entry_behind(region.position + region.size)
    end_offset = segments.end_of(segment, log_end_offset) if beyond is None else beyond.offset
    found: list[AbortedTransaction] = []
    for walked in segments.from_offset(segment.base_offset):
        for transaction in confirmed_index(walked, segments, snapshots):
            if transaction.last_offset >= fetch_offset and transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                return found
    return found


def confirmed_index(segment: Segment, segments: Segments, snapshots: ProducerSnapshots) -> TransactionIndex:
    """The transaction index of a segment, compared with the markers it names, and made anew if one is not there."""
    index = segment.transaction_index
    if not index.is_confirmed:
        try:
            _confirm(segment)
        except CorruptIndex as error:
            for _ in transactions_anew(segment, list(segments), snapshots):
                pass
            segment.files.on_repair(f"{error}: made anew from the {segment.size} bytes of {segment.log_path}")
    return index


def _confirm(segment: Segment) -> None:
    """Compare each entry of the transaction index with the marker it names. Raises CorruptIndex."""
    index = segment.transaction_index
    index.check()
    for transaction in index:
        place = segment.locate(transaction.last_offset)
        header = None if place is None else read_header(segment.files.log_file().pread(HEADER_SIZE, place.position))
        # Compaction may have removed the marker, and has then left a batch behind it.
        if header is None or (
            header.base_offset <= transaction.last_offset
            and not (header.is_control and header.producer_id == transaction.producer_id)
        ):
            raise CorruptIndex(
                f"{index.path} says that producer {transaction.producer_id} aborted a transaction "
                f"at offset {transaction.last_offset}, and no marker of it stands there"
            )
    index.is_confirmed = True
