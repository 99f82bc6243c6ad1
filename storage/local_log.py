"""The files of one log: segments and producer snapshots in one directory, made, removed and cut.

What a change means for the log's offsets, producers and leader epochs is decided in `storage.log`.
"""

from collections.abc import Callable, Mapping, Sequence

from config.log_config import LogConfig
from storage.checkpoints import PARTITION_METADATA, write_topic_id
from storage.errors import StorageError
from storage.file_names import CLEANED_SUFFIX
from storage.files import FileSystem
from storage.flushing import Flushing
from storage.open_files import OpenFiles
from storage.producer_snapshots import ProducerSnapshots
from storage.producer_state import ProducerEntry
from storage.removal import PendingRemoval
from storage.segment import Segment
from storage.segment_files import FileSizes
from storage.segment_swap import SegmentSwap
from storage.segments import Segments


class LocalLog:
    """The segments and snapshots in a log's directory."""

    __slots__ = ("_chance", "_files", "_open_files", "directory", "flushing", "segments", "snapshots")

    def __init__(
        self,
        files: FileSystem,
        open_files: OpenFiles,
        directory: str,
        *,
        segments: Segments,
        snapshots: ProducerSnapshots,
        flushing: Flushing,
        chance: Callable[[], int],
    ) -> None:
        self._files = files
        self._open_files = open_files
        self._chance = chance
        self.directory = directory
        self.segments = segments
        self.snapshots = snapshots
        self.flushing = flushing

    def moved_to(self, directory: str) -> None:
        """Note that the log's directory was renamed, and that the new name is on disk."""
        self.directory = directory
        self.snapshots.moved_to(directory)
        self.flushing.moved_to(directory)
        for segment in self.segments:
            segment.files.moved_to(directory)

    def write_topic_id(self, topic_id: bytes) -> None:
        """Write the topic id, 16 bytes. Raises DiskFull, LogDirFailed."""
        write_topic_id(self._files, f"{self.directory}/{PARTITION_METADATA}", topic_id)
        self.flushing.directory_changed()

    def roll(self, base_offset: int, producers: Mapping[int, ProducerEntry], config: LogConfig, now_ms: int) -> Segment:
        """Begin a new active segment, with a snapshot of the producers' state at its beginning.

        Raises DiskFull, TooManyOpenFiles, LogDirFailed; the segments are as they were then.
        """
        old = self.segments.active
        self.snapshots.take(base_offset, producers)
        try:
            old.deactivate()
            if self.flushing.under_way_to >= base_offset:
                # Recovery may begin with the new segment and would trust these indexes; no flush will come for them.
                for file in old.open_for_flush():
                    file.fsync()
                self._files.fsync_directory(self.directory)
            new = self._new_segment(base_offset, config, now_ms)
        except StorageError:
            old.activate()
            raise
        self.segments.add(new)
        self.flushing.directory_changed()
        return new

    def _new_segment(self, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        segment = Segment(
            self._files, self._open_files, self.directory, base_offset,
            config=config, created_ms=now_ms, jitter=self._chance(),
        )  # fmt: skip
        segment.create(preallocated_bytes=config.segment_bytes if config.preallocate else 0)
        return segment

    def rename_as_removed(self, segment: Segment, delay_ms: int, *, keeps_snapshot: bool = False) -> PendingRemoval:
        """Rename the files of a segment that is out of the log; they are to be removed ``delay_ms`` later."""
        self.flushing.directory_changed()
        paths = segment.files.rename_as_removed()
        if not keeps_snapshot:
            paths += self.snapshots.rename_as_removed(segment.base_offset)
        return PendingRemoval(self._files, paths, delay_ms)

    def begin_swap(
        self, base_offsets: Sequence[int], sizes: FileSizes, modified_ms: int, config: LogConfig
    ) -> SegmentSwap | None:
        """Begin to replace segments with a cleaned copy; None if the log does not have these segments."""
        replaced = [self.segments.at(base_offset) for base_offset in base_offsets]
        if [segment.base_offset for segment in replaced] != list(base_offsets) or not self._has_run(replaced):
            return None
        copy = Segment(
            self._files, self._open_files, self.directory, base_offsets[0],
            config=config, created_ms=modified_ms, found=sizes, suffix=CLEANED_SUFFIX,
        )  # fmt: skip
        return SegmentSwap(self._files, copy, replaced)

    def swap_in(self, swap: SegmentSwap, delay_ms: int) -> list[PendingRemoval] | None:
        """Put a prepared copy in the place of its segments, whose files are to be removed ``delay_ms`` later.

        None if the log does not have these segments any more.
        """
        if not self._has_run(swap.replaced):
            return None
        first = swap.copy.base_offset
        self.segments.replace(swap.replaced, swap.copy)
        swap.copy.transaction_index.is_confirmed = True
        return [
            self.rename_as_removed(segment, delay_ms, keeps_snapshot=segment.base_offset == first)
            for segment in swap.replaced
        ]

    def _has_run(self, segments: list[Segment]) -> bool:
        """Whether these segments are neighbours in the log, and the active segment is none of them."""
        number = self.segments.number_at(segments[0].base_offset)
        run = list(self.segments)[number : number + len(segments)]
        return run == segments and self.segments.active not in run

    def cut_to(self, offset: int) -> int:
        """Remove the batches at and above ``offset``, and the batch that holds it; returns where the last one ends.

        Removed bytes are gone from the disk when this returns. ``offset`` is returned where no batch says more.
        """
        kept = self.segments.number_at(offset)
        # From the end on, and on disk before the file before them is cut: no hole, whenever the power is cut.
        for segment in reversed(self.segments.replace_last(len(self.segments) - kept - 1, None)):
            segment.files.discard()
        self.snapshots.remove_above(offset)
        self._files.fsync_directory(self.directory)
        active = self.segments.active
        place = active.locate(offset)
        if place is not None:
            active.cut_to(place.position, offset)
            active.files.log_file().fsync()
        active.activate()
        end_offset = active.find_next_offset()
        return offset if end_offset is None else end_offset

    def discard_all(self) -> None:
        """Remove all segments and snapshots at once; `begin_anew_at` must follow."""
        for segment in reversed(list(self.segments)):
            segment.files.discard()
        self.snapshots.remove_above(-1)

    def begin_anew_at(self, offset: int, config: LogConfig, now_ms: int) -> None:
        """Begin a first segment in the place of the discarded segments, on disk too. Raises DiskFull, LogDirFailed."""
        self._files.fsync_directory(self.directory)
        first = self._new_segment(offset, config, now_ms)
        self._files.fsync_directory(self.directory)
        self.segments.replace_last(len(self.segments), first)

    def close(self) -> None:
        """Close all files without a write."""
        for segment in self.segments:
            segment.close()
