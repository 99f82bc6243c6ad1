"""The limits of this machine, measured in the same round and with the same load generator as the broker."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.load import Sample, run_load, run_paced
from bench.processes import Peer

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions:
    """The socket options that the broker sets on its connections; empty or negative: the system's own."""

    congestion: str = ""
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1

    def arguments(self) -> list[str]:
        buffers = ["--send-buffer", str(self.send_buffer_bytes), "--receive-buffer", str(self.receive_buffer_bytes)]
        return [*(["--congestion", self.congestion] if self.congestion else []), *buffers]


def sequential_write(directory: Path, *, size: int, count: int, cycles: int, lead_in: int) -> float:
    """MB/s of `count` writes of `size` bytes to a new file, into the page cache only.

    Measured in as many cycles as the broker's sample; the first `lead_in` cycles are not counted.
    """
    view = memoryview(bytes(range(256)) * (size // 256 + 1))[:size]
    seconds = 0.0
    for cycle in range(-lead_in, cycles):
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            descriptor = file.fileno()
            started = time.perf_counter()
            for _ in range(count):
                written = os.write(descriptor, view)
                assert written == size
            if cycle >= 0:
                seconds += time.perf_counter() - started
    return size * count * cycles / seconds / MEGABYTE


def fsync_rate(directory: Path, *, size: int, count: int) -> float:
    """Appends a second of `size` bytes to one file, each on the disk before the next."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        descriptor = file.fileno()
        started = time.perf_counter()
        for _ in range(count):
            os.write(descriptor, bytes(size))
            os.fdatasync(descriptor)
        return count / (time.perf_counter() - started)


def bare_append(
    directory: Path, options: SocketOptions, *, frame: bytes, in_flight: int, count: int, cycles: int, lead_in: int
) -> float:
    """MB/s of the same requests to a program that only receives, computes the CRC, writes and answers."""
    seconds = 0.0
    with tempfile.TemporaryDirectory(dir=directory) as home:
        numbers = ["--request", str(len(frame)), "--header", "60"]
        with Peer("append", "--file", f"{home}/file", *numbers, *options.arguments()) as peer:
            for cycle in range(-lead_in, cycles):
                sample = run_load(peer.bootstrap, [frame], in_flight=in_flight, requests=count)
                if cycle >= 0:
                    seconds += sample.seconds
    return len(frame) * count * cycles / seconds / MEGABYTE


def plain_sendfile(
    directory: Path, options: SocketOptions, *, size: int, header: int, request: bytes, in_flight: int, count: int
) -> Sample:
    """The load on a blocking server that answers with `header` bytes and `size` bytes of a cached file."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        file.write(os.urandom(4096) * (size // 4096 + 1))
        file.flush()
        numbers = ["--size", str(size), "--header", str(header), "--request", str(len(request))]
        with Peer("sendfile", "--file", file.name, *numbers, *options.arguments()) as peer:
            return run_load(peer.bootstrap, [request], in_flight=in_flight, requests=count)


def echo_latencies(options: SocketOptions, *, frame: bytes, rate: float, count: int) -> list[float]:
    """Latencies in seconds of requests at fixed moments to a bare echo server: the part of the latency that the machine
    causes."""
    with Peer("echo", *options.arguments()) as peer:
        return run_paced(peer.bootstrap, [frame], rate=rate, requests=count)


def echo_cpu_us(
    options: SocketOptions, *, frame: bytes, connections: int, in_flight: int, count: int, each_frame: bool
) -> float:
    """CPU microseconds that a bare echo server spends on one request."""
    extra = ["--each-frame"] if each_frame else []
    with Peer("echo", *extra, *options.arguments()) as peer:
        before = peer.cpu_seconds()
        sample = run_load(peer.bootstrap, [frame] * connections, in_flight=in_flight, requests=count)
        return (peer.cpu_seconds() - before) / sample.requests * 1e6
