import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.network import transport
from broker.network.send_buffer import RegionCutShort, SendBuffer, SendOutcome, held_bytes
from broker.network.transport import MORE_FOLLOWS, Bytes, Handshake, PlaintextTransport
from protocol.codec import Chunk
from storage.files import FileRegion, FileSystem


def region(path: Path, position: int, size: int) -> FileRegion:
    return FileRegion(FileSystem().open_read(str(path)), position, size)


class Wire:
    """A `Transport` that takes as many bytes each time as it is told; 0 is EAGAIN."""

    descriptor = -1

    def __init__(self, takes: list[int]) -> None:
        self.takes = takes
        self.got = bytearray()
        self.flags: list[int] = []

    def _take(self, data: bytes) -> int:
        most = self.takes.pop(0) if self.takes else len(data)
        if data and not most:
            raise BlockingIOError
        self.got += data[:most]
        return min(most, len(data))

    def receive_into(self, memory: memoryview) -> int:
        return 0

    def send(self, data: Bytes, flags: int) -> int:
        self.flags.append(flags)
        return self._take(bytes(data))

    def send_pieces(self, pieces: Sequence[Bytes], flags: int) -> int:
        self.flags.append(flags)
        return self._take(b"".join(pieces))

    def send_region(self, region: transport.Region, position: int, size: int) -> int:
        return self._take(os.pread(region.file.fileno(), size, position))

    def cork(self, is_corked: bool) -> None:
        """It knows no packets."""

    def handshake(self) -> Handshake:
        return Handshake.DONE

    def close(self) -> None:
        """It stays."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def all_of(wire: socket.socket) -> bytes:
    data = b""
    while True:
        try:
            data += wire.recv(1 << 20)
        except BlockingIOError:
            return data


def test_a_region_larger_than_the_socket_takes_goes_on_where_it_stopped(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    path = tmp_path / "log"
    path.write_bytes(os.urandom(3_000_000))
    buffer = SendBuffer(PlaintextTransport(ours))
    buffer.add([b"head", region(path, 1000, 2_500_000), b"tail"])
    received = b""
    outcome, total = buffer.send(1 << 30)
    assert outcome is SendOutcome.BLOCKED
    sent = total
    while outcome is not SendOutcome.DONE:
        received += all_of(theirs)
        outcome, total = buffer.send(1 << 30)
        sent += total
    received += all_of(theirs)
    assert received == b"head" + path.read_bytes()[1000:2_501_000] + b"tail"
    assert sent == len(received)


def test_a_turn_ends_when_its_bytes_are_gone(tmp_path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    path = tmp_path / "log"
    path.write_bytes(b"r" * 10_000)
    buffer = SendBuffer(PlaintextTransport(ours))
    buffer.add([region(path, 0, 10_000)])
    assert buffer.send(4_000) == (SendOutcome.TURN_OVER, 4_000)
    assert buffer.send(4_000) == (SendOutcome.TURN_OVER, 4_000)
    assert buffer.send(4_000) == (SendOutcome.DONE, 2_000)
    assert all_of(theirs) == path.read_bytes()


def test_a_file_that_ends_inside_a_region_cannot_be_finished(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"short")
    buffer = SendBuffer(PlaintextTransport(pair[0]))
    buffer.add([region(path, 3, 10)])
    with pytest.raises(RegionCutShort, match="8 bytes at 5"):
        buffer.send(1 << 30)


def test_what_stands_before_records_asks_for_no_packet_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"records")
    wire = Wire([])
    buffer = SendBuffer(wire)
    buffer.add([b"head", b"more head", region(path, 0, 7), b"tail"])
    assert buffer.send(1 << 30)[0] is SendOutcome.DONE
    assert wire.flags == [MORE_FOLLOWS, 0]
    assert wire.got == b"headmore headrecordstail"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the packets are left as they come")
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_small_answer_with_records_leaves_in_one_packet(tmp_path: Path, partitions: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"records")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as theirs,
        listener.accept()[0] as ours,
    ):
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = SendBuffer(PlaintextTransport(ours))
        for answers in (1, 2):
            buffer.add([b"head", region(path, 0, 7)] * partitions)
            buffer.add([b"tail"])
            assert buffer.send(1 << 30) == (SendOutcome.DONE, 11 * partitions + 4)
            assert theirs.recv(1 << 10) == b"headrecords" * partitions + b"tail"
            assert packets_of_data(ours) == answers


def packets_of_data(one: socket.socket) -> int:
    """How many it has sent: `tcpi_data_segs_out` of Linux' `struct tcp_info`."""
    count: int = struct.unpack_from("=I", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160), 156)[0]
    return count


def test_only_memory_counts_as_held(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"r" * 100)
    chunks: list[Chunk] = [b"12345", region(path, 0, 100), memoryview(b"678")]
    assert held_bytes(chunks) == 8
    buffer = SendBuffer(Wire([2, 0]))
    buffer.add(chunks)
    assert buffer.held_bytes == 8
    assert buffer.send(1 << 30)[0] is SendOutcome.BLOCKED
    assert buffer.held_bytes == 6


@settings(max_examples=200, deadline=None)
@given(
    pieces=st.lists(st.tuples(st.booleans(), st.binary(max_size=30)), max_size=12),
    takes=st.lists(st.integers(0, 12), max_size=60),
    most=st.integers(1, 50),
)
def test_whatever_the_socket_takes_every_byte_goes_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[bool, bytes]], takes: list[int], most: int
) -> None:
    whole = b"".join(data for _, data in pieces)
    path = tmp_path_factory.getbasetemp() / "regions"
    path.write_bytes(whole)
    wire = Wire(takes)
    buffer = SendBuffer(wire)
    position = 0
    for is_region, data in pieces:
        buffer.add([region(path, position, len(data)) if is_region else data])
        position += len(data)
    total = 0
    for _ in range(1000):
        outcome, sent = buffer.send(most)
        total += sent
        if outcome is SendOutcome.DONE:
            break
    assert wire.got == whole
    assert total == len(whole)
    assert not buffer
