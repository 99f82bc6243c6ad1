"""A copy-on-write file system: changes stay in memory, and the files on disk stay as they are.

With it a log is opened exactly as the broker opens it at its start, recovery included, but no file is changed.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

from storage.file_info import DirectoryEntry, DiskSpace
from storage.files import Buffer, File, FileMap, FileSystem, Lock


class _Content:
    """The content of a file: the first bytes of a file on disk, or bytes in memory after the first write."""

    def __init__(self, original: File | None) -> None:
        self.original = original
        self.size = 0 if original is None else original.size
        self.written: bytearray | None = bytearray() if original is None else None

    def own(self) -> bytearray:
        if self.written is None:
            assert self.original is not None
            self.written = bytearray(self.original.pread(self.size, 0))
        return self.written


class _UntouchedFile(File):
    """An open file whose changes stay in memory."""

    __slots__ = ("_content",)

    def __init__(self, path: str, content: _Content) -> None:
        self.path = path
        self._content = content

    def __del__(self) -> None:
        pass  # the file on disk, if there is one, belongs to the content

    def fileno(self) -> int:
        raise OSError(f"{self.path} is only read")

    @property
    def size(self) -> int:
        return self._content.size

    def pread(self, size: int, position: int) -> bytes:
        content = self._content
        if content.written is not None:
            return bytes(content.written[position : position + size])
        assert content.original is not None
        return content.original.pread(max(min(size, content.size - position), 0), position)

    def pwrite(self, data: Buffer, position: int) -> None:
        own = self._content.own()
        own.extend(bytes(max(position - len(own), 0)))
        own[position : position + len(data)] = data
        self._content.size = len(own)

    def append_vector(self, buffers: Sequence[Buffer], position: int) -> int:
        start = position
        for buffer in buffers:
            self.pwrite(buffer, position)
            position += len(buffer)
        return position - start

    def truncate(self, size: int) -> None:
        content = self._content
        if content.written is not None or size > content.size:
            own = content.own()
            del own[size:]
            own.extend(bytes(size - len(own)))
        content.size = size

    def fsync(self) -> None:
        pass

    def map_read_only(self) -> FileMap | None:
        content = self._content
        if content.size == 0:
            return None
        mapped = mmap.mmap(-1, content.size)
        mapped.write(self.pread(content.size, 0))
        return mapped


class UntouchedFiles(FileSystem):
    """The machine's file system, as it would be after the changes that were made through this object."""

    def __init__(self) -> None:
        self._contents: dict[str, _Content | None] = {}
        """Contents by path; None for a removed file."""

    def _content_of(self, path: str) -> _Content:
        if path not in self._contents:
            self._contents[path] = _Content(super().open_read(path))
        content = self._contents[path]
        if content is None:
            raise FileNotFoundError(2, os.strerror(2), path)
        return content

    def open_log(self, path: str, *, create: bool = False) -> File:
        if create:
            self._contents[path] = _Content(None)
        return self.open_read(path)

    def open_read(self, path: str) -> File:
        return _UntouchedFile(path, self._content_of(path))

    def exists(self, path: str) -> bool:
        if path in self._contents:
            return self._contents[path] is not None
        return super().exists(path)

    def size(self, path: str) -> int:
        return self._content_of(path).size

    def mtime_ms(self, path: str) -> int:
        original = self._content_of(path).original
        return 0 if original is None else super().mtime_ms(original.path)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        entries = {entry.name: entry for entry in super().list_directory(path)}
        for changed, content in self._contents.items():
            directory, _, name = changed.rpartition("/")
            if directory == path:
                if content is None:
                    entries.pop(name, None)
                else:
                    entries[name] = DirectoryEntry(name, False, content.size, 0)
        return sorted(entries.values())

    def make_directory(self, path: str) -> None:
        pass

    def rename(self, path: str, new_path: str) -> None:
        self._contents[new_path] = self._content_of(path)
        self._contents[path] = None

    def replace_atomically(self, path: str, data: bytes, *, fsync: bool, mode: int = 0o644) -> None:
        content = self._contents[path] = _Content(None)
        content.own().extend(data)
        content.size = len(data)

    def remove(self, path: str) -> None:
        self._contents[path] = None

    def remove_tree(self, path: str) -> None:
        raise AssertionError(f"{path} is only read: opening a log asks for no such thing")

    def remove_directory(self, path: str) -> None:
        raise AssertionError(f"{path} is only read: opening a log asks for no such thing")

    def fsync_directory(self, path: str) -> None:
        pass

    def space(self, path: str) -> DiskSpace:
        return super().space(path)

    def lock(self, path: str) -> Lock:
        raise AssertionError(f"{path} is only read: opening a log asks for no such thing")
