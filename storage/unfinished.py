"""Files that the last process left half made or half renamed in a log's directory: finished, or taken back.

.deleted    out of use: removed
.tmp        a checkpoint that was being written: removed
.cleaned    a copy that the cleaner was writing: removed
.swap       a whole copy, whose place is that of the segments it contains: put there (`storage.segment_swap`)
"""

from collections.abc import Callable
from typing import Final

from storage.batch.walk import BatchWalk, WalkPolicy
from storage.errors import LogDirFailed
from storage.file_info import DirectoryEntry
from storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    offset_in,
)
from storage.files import FileSystem

_SUFFIXES_OF_A_LOG: Final = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)
_TEMPORARY_SUFFIX: Final = ".tmp"

_WITH_RIGHT_CRC: Final = WalkPolicy(checks_crc=True)


def offsets_of(listing: list[DirectoryEntry], suffix: str) -> list[int]:
    """The offsets in the names of the files with this suffix."""
    return [offset for entry in listing if (offset := offset_in(entry.name, suffix)) is not None]


def _offset_of_swap(name: str) -> int | None:
    offsets = (offset_in(name, suffix + SWAP_SUFFIX) for suffix in SEGMENT_SUFFIXES)
    return next((offset for offset in offsets if offset is not None), None)


def finish_what_was_begun(files: FileSystem, directory: str, found: Callable[[str], None]) -> list[DirectoryEntry]:
    """Finish or take back what the last process left unfinished; returns the listing of the files left.

    The cleaner writes `.cleaned` files, renames them to `.swap` from the highest base offset down once all are on disk,
    removes what they replace and strips the suffix. So `.swap` files count, unless lower `.cleaned` ones are left.
    """
    listing = files.list_directory(directory)
    for entry in listing:
        if not entry.is_file and any(offset_in(entry.name, suffix) is not None for suffix in _SUFFIXES_OF_A_LOG):
            raise LogDirFailed(f"{directory}/{entry.name} is {entry.kind}, expected a file")
    # A copy of which any file is not renamed yet does not count.
    cleaned = [base for suffix in SEGMENT_SUFFIXES for base in offsets_of(listing, suffix + CLEANED_SUFFIX)]
    unfinished_from = min(cleaned, default=None)
    removed: list[str] = []
    swapped: dict[int, list[str]] = {}
    for entry in listing:
        if entry.name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, _TEMPORARY_SUFFIX)):
            removed.append(entry.name)
        elif (base_offset := _offset_of_swap(entry.name)) is not None:
            if unfinished_from is not None and base_offset >= unfinished_from:
                removed.append(entry.name)
            else:
                swapped.setdefault(base_offset, []).append(entry.name)
    for name in removed:
        files.remove(f"{directory}/{name}")
    if removed:
        found(f"{directory} had files that were no longer or not yet in use: {', '.join(removed)} were removed")
    if swapped:
        _swap_in(files, directory, listing, swapped, found)
    return files.list_directory(directory) if removed or swapped else listing


def _swap_in(
    files: FileSystem,
    directory: str,
    listing: list[DirectoryEntry],
    swapped: dict[int, list[str]],
    found: Callable[[str], None],
) -> None:
    sizes = {entry.name: entry.size for entry in listing}
    spans = []
    for base_offset, names in list(swapped.items()):
        path = f"{directory}/{base_offset:020d}{LOG_SUFFIX}"
        size = sizes.get(f"{base_offset:020d}{LOG_SUFFIX}{SWAP_SUFFIX}")
        if size is None:
            # Its file of batches has its name already.
            continue
        end_offset, end = base_offset, 0
        for batch in BatchWalk(files.open_read(path + SWAP_SUFFIX).pread, 0, size, _WITH_RIGHT_CRC):
            end_offset, end = batch.header.next_offset, batch.position + len(batch.data)
        if end < size and f"{base_offset:020d}{LOG_SUFFIX}" in sizes:
            for name in swapped.pop(base_offset):
                files.remove(f"{directory}/{name}")
            found(
                f"{path}{SWAP_SUFFIX} has no batch at position {end} of {size}: {path} stays, {', '.join(names)} went"
            )
        else:
            spans.append((base_offset, end_offset))
    replaced = []
    if spans:
        lowest, highest = min(spans)[0], max(end for _, end in spans)
        for suffix in SEGMENT_SUFFIXES:
            for base_offset in offsets_of(listing, suffix):
                if lowest <= base_offset < highest:
                    replaced.append(f"{base_offset:020d}{suffix}")
                    files.remove(f"{directory}/{replaced[-1]}")
    names = [name for group in swapped.values() for name in group]
    for name in names:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    if names:
        found(
            f"{directory} had {', '.join(names)}: put in the place of {', '.join(replaced) or 'what had been removed'}"
        )
