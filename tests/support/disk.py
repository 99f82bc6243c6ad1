"""A simulated disk after a power cut: it has all changes that were synced, and a part of the later changes.

POSIX promises nothing of what has not been synced, and neither does this disk:

    names      Making, renaming and removing count once the directory that they happened in has been synced. Syncing a
               file does not make its name durable (ext4 and XFS do that; POSIX does not ask for it). What has not been
               synced may be lost from any point on: the changes of one directory are kept in their order, as every
               journaling file system keeps them (ext4, XFS, Btrfs); changes of different directories, and names and
               contents, have no order. `Chance.reorders` drops even that: then each change is kept or lost for itself.
    contents   Writes and truncations count once the file has been synced. Of those since, any may be there and any
               not; a write may lack any of its sectors, or end at any byte; a file may have its new size and zeros
               where the data should be (delayed allocation); overwritten bytes may be the old ones. A sector is there
               or not: what is torn inside one and goes on behind it would not be noticed in the 16 bytes of a batch
               that its CRC leaves out, by Apache Kafka neither.
"""

import os
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, NamedTuple, Protocol


class Write(NamedTuple):
    """A change: bytes written at a position."""

    position: int
    data: bytes


class Truncate(NamedTuple):
    """A change: a file's new size."""

    size: int


Change = Write | Truncate


class NameChange(NamedTuple):
    """A change: a name made, removed or replaced in a directory."""

    kind: Literal["link", "unlink", "rename"]
    name: str
    node: "Node"
    new_name: str = ""


@dataclass(slots=True, eq=False)
class FileNode:
    """A file, independent of its names."""

    base: bytes | None = b""
    """The content at the last sync; None: as it is on the machine's disk."""
    changes: list[Change] = field(default_factory=list)
    """Changes since the last sync."""
    has_name: bool = True
    given_up: int = 0
    """How many of these changes a failed sync has given up: the kernel marks their pages clean and never writes
    them."""

    def synced(self) -> None:
        """The file has been synced: its changes are on the disk, all but those that were given up."""
        if self.base is not None:
            content = bytearray(self.base)
            for change in self.changes[self.given_up :]:
                after(content, change)
            self.base = bytes(content) if self.given_up or not self.has_name else None
        self.changes.clear()
        self.given_up = 0

    def sync_failed(self) -> None:
        """A sync of the file has failed: its changes may be on the disk or not, and are not tried again."""
        self.given_up = len(self.changes)


@dataclass(slots=True, eq=False)
class DirectoryNode:
    """A directory, independent of its path."""

    base: dict[str, "Node"] | None = None
    """The entries at the last sync; None: as they are on the machine's disk."""
    changes: list[NameChange] = field(default_factory=list)


Node = FileNode | DirectoryNode


class Survival(Protocol):
    """Decides which unsynced changes survive a power cut."""

    def names(self, changes: list[NameChange]) -> list[NameChange]:
        """The changes of a directory that have reached the disk."""

    def content(self, name: str, base: bytes, changes: list[Change]) -> bytes:
        """The content on the disk of a file that was ``base`` at its last sync."""


@dataclass(slots=True)
class Disk:
    """The files and directories that have been changed, with their unsynced changes."""

    nodes: dict[int, Node] = field(default_factory=dict)
    """Nodes by inode."""

    def file(self, descriptor_or_path: int | str) -> FileNode:
        """The node of a file."""
        inode = os.stat(descriptor_or_path).st_ino
        node = self.nodes.get(inode)
        if not isinstance(node, FileNode):
            self.nodes[inode] = node = FileNode(base=None)
        return node

    def directory(self, path: str) -> DirectoryNode:
        """The node of a directory."""
        inode = os.stat(path).st_ino
        node = self.nodes.get(inode)
        if not isinstance(node, DirectoryNode):
            self.nodes[inode] = node = DirectoryNode()
        return node

    def _node(self, path: str) -> Node:
        return self.directory(path) if os.path.isdir(path) else self.file(path)

    def _about_to_change_names(self, path: str) -> DirectoryNode:
        node = self.directory(os.path.dirname(path) or ".")
        if node.base is None:
            node.base = self.listing(os.path.dirname(path) or ".")
        return node

    def listing(self, path: str) -> dict[str, Node]:
        """The entries of a directory as the system shows them."""
        return {name: self._node(os.path.join(path, name)) for name in sorted(os.listdir(path))}

    def will_be_made(self, path: str) -> DirectoryNode:
        """A name is about to be made at ``path``. Returns the node of the directory."""
        return self._about_to_change_names(path)

    def made(self, parent: DirectoryNode, path: str) -> None:
        """A name has been made; a former node of the same inode is forgotten."""
        node = DirectoryNode(base={}) if os.path.isdir(path) else FileNode()
        self.nodes[os.stat(path).st_ino] = node
        parent.changes.append(NameChange("link", os.path.basename(path), node))

    def will_be_removed(self, path: str) -> None:
        """The name ``path`` is about to be removed; its node is kept, since the name may come back."""
        parent = self._about_to_change_names(path)
        node = self._node(path)
        self._remember(path, node)
        self.nodes.pop(os.stat(path).st_ino)
        parent.changes.append(NameChange("unlink", os.path.basename(path), node))

    def will_be_renamed(self, path: str, new_path: str) -> None:
        """``path`` is about to be renamed to ``new_path``, in the same directory."""
        assert os.path.dirname(path) == os.path.dirname(new_path), f"{path} moves to {new_path}"
        parent = self._about_to_change_names(path)
        if os.path.exists(new_path):
            self._remember(new_path, self._node(new_path))
            self.nodes.pop(os.stat(new_path).st_ino)
        parent.changes.append(
            NameChange("rename", os.path.basename(path), self._node(path), os.path.basename(new_path))
        )

    def _remember(self, path: str, node: Node) -> None:
        if node.base is None:
            if isinstance(node, FileNode):
                node.base = _content(path)
            else:
                node.base = self.listing(path)
        if isinstance(node, FileNode):
            node.has_name = False

    def synced_names(self, path: str) -> None:
        """The names in a directory have been synced."""
        node = self.directory(path)
        node.base = None
        node.changes.clear()

    def cut_power(self, root: str, survival: Survival) -> None:
        """Everything below the directory ``root`` becomes what the disk has of it; all of that counts as synced
        then."""
        contents: dict[FileNode, bytes] = {}
        listings: dict[DirectoryNode, dict[str, Node]] = {}

        def look_at(path: str) -> None:
            listings[self.directory(path)] = listing = self.listing(path)
            for name, node in listing.items():
                if isinstance(node, DirectoryNode):
                    look_at(os.path.join(path, name))
                elif node.base is None:
                    contents[node] = _content(os.path.join(path, name))

        def write_back(path: str, directory: DirectoryNode) -> None:
            for name, node in sorted(names_left(directory).items()):
                place = os.path.join(path, name)
                if isinstance(node, DirectoryNode):
                    os.mkdir(place)
                    write_back(place, node)
                    continue
                base = contents.get(node) if node.base is None else node.base
                if base is not None:  # else somebody has removed it without asking this disk
                    with open(place, "wb") as file:
                        file.write(survival.content(name, base, node.changes) if node.changes else base)

        def names_left(directory: DirectoryNode) -> dict[str, Node]:
            if directory.base is None:
                return listings[directory]
            left = dict(directory.base)
            for change in survival.names(directory.changes):
                if change.kind == "link":
                    left[change.name] = change.node
                elif left.get(change.name) is change.node:
                    del left[change.name]
                if change.kind == "rename":
                    left[change.new_name] = change.node
            return left

        look_at(root)
        for name in os.listdir(root):
            _remove(os.path.join(root, name))
        write_back(root, self.directory(root))
        self.nodes.clear()


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _remove(path: str) -> None:
    if os.path.isdir(path):
        for name in os.listdir(path):
            _remove(os.path.join(path, name))
        os.rmdir(path)
    else:
        os.unlink(path)


def after(content: bytearray, change: Change) -> None:
    """Apply one change to a file's content."""
    size = change.size if isinstance(change, Truncate) else change.position + len(change.data)
    if isinstance(change, Truncate):
        del content[size:]
    content.extend(bytes(size - len(content)) if size > len(content) else b"")
    if isinstance(change, Write):
        content[change.position : size] = change.data


class EverythingSynced:
    """No unsynced change survives, except for as many appended bytes as ``keep`` returns."""

    def __init__(self, keep: "Keep") -> None:
        self._keep = keep

    def names(self, changes: list[NameChange]) -> list[NameChange]:
        return []

    def content(self, name: str, base: bytes, changes: list[Change]) -> bytes:
        content = bytearray(base)
        for change in changes:
            after(content, change)
        if not content.startswith(base):
            return base
        return bytes(content[: len(base) + self._keep(name, len(content) - len(base))])


class Keep(Protocol):
    """Returns how many of so many appended bytes a file keeps."""

    def __call__(self, name: str, added: int, /) -> int: ...


NOTHING: Final = 0
EVERYTHING: Final = 1


class Chance:
    """Any unsynced changes may survive: drawn from ``seed``, where 0 keeps none and 1 all."""

    def __init__(self, seed: int, *, reorders: bool = False) -> None:
        self._seed = seed
        self._random = Random(seed)
        self.reorders = reorders

    def names(self, changes: list[NameChange]) -> list[NameChange]:
        if self._seed in (NOTHING, EVERYTHING):
            return changes if self._seed == EVERYTHING else []
        if self.reorders:
            return [change for change in changes if self._random.random() < 0.5]
        return changes[: self._random.randint(0, len(changes))]

    def content(self, name: str, base: bytes, changes: list[Change]) -> bytes:
        content = bytearray(base)
        if self._seed == NOTHING:
            return base
        how = "all" if self._seed == EVERYTHING else self._random.choice(("none", "all", "some first", "any", "any"))
        if how == "none":
            return base
        if how == "all":
            kept = changes
        elif how == "some first":
            kept = changes[: self._random.randint(0, len(changes))]
            if kept and isinstance(torn := kept[-1], Write):
                kept = [*kept[:-1], Write(torn.position, torn.data[: self._random.randint(0, len(torn.data))])]
        else:
            kept = [piece for change in changes for piece in self._pieces(change) if self._random.random() < 0.6]
        for change in kept:
            after(content, change)
        if how == "any" and self._random.random() < 0.3:
            # Delayed allocation: the size is there, the data is not.
            final = bytearray(base)
            for change in changes:
                after(final, change)
            after(content, Truncate(max(len(content), len(final))))
        return bytes(content)

    def _pieces(self, change: Change) -> list[Change]:
        if isinstance(change, Truncate):
            return [change]
        sector = self._random.choice((64, 512, 4096))
        pieces: list[Change] = []
        position, end = change.position, change.position + len(change.data)
        while position < end:
            piece_end = min(end, (position // sector + 1) * sector)
            pieces.append(Write(position, change.data[position - change.position : piece_end - change.position]))
            position = piece_end
        return pieces
