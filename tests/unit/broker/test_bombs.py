"""What a hundred kilobytes that open to gigabytes cost a broker that opens them, measured in a process of its own.

The bound is 64 MiB (`storage.batch.validation`), held up to three times while it is put together, and 128 MiB of window
where a zstd frame asks for it.
"""

import json
import resource
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest

from protocol.errors import ErrorCode as E
from storage.batch.record_batch import HEADER_SIZE, LOG_OVERHEAD, Codec
from tests.support.batches import changed, produced
from tests.support.broker import running_broker
from tests.support.requests import produce_request

MIB = 1 << 20
MOST_MIB = 256

TOPICS = {
    "compacted": {"cleanup_policy": "compact"},
    "recompressed": {"compression_type": "uncompressed"},
    "aged": {"message_timestamp_before_max_ms": 1000},
}


def gzip_bomb(size: int) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = []
    while sum(map(len, parts)) < size:
        parts.append(deflater.compress(bytes(16 * MIB)))
    return b"".join([*parts, deflater.flush()])


def lz4_bomb(size: int) -> bytes:
    frame: bytes = lz4.frame.compress(bytes(size * 250), block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=False)
    return frame


def zstd_bomb(size: int, window_log: int = 17) -> bytes:
    """Blocks of one byte that is repeated 128 KiB times: four bytes each."""
    repeat = (1 << 1 | (128 * 1024) << 3).to_bytes(3, "little") + b"\0"
    last = (1 << 1 | 1 | (128 * 1024) << 3).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00" + bytes([window_log - 10 << 3]) + repeat * (size // 4) + last


def zstd_bomb_with_a_large_window(size: int) -> bytes:
    return zstd_bomb(size, window_log=27)


BOMBS: dict[str, tuple[Codec, Callable[[int], bytes]]] = {
    "gzip": (Codec.GZIP, gzip_bomb),
    "lz4": (Codec.LZ4, lz4_bomb),
    "zstd": (Codec.ZSTD, zstd_bomb),
    "zstd-window": (Codec.ZSTD, zstd_bomb_with_a_large_window),
}
SIZES = {"lz4": 400_000}
"""lz4 makes 255 bytes of one at best. Snappy makes 21: what may be sent of it stays below the bound."""


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def explode(kind: str) -> dict[str, int]:
    """Send a bomb to each topic that opens it, again and again; the broker's answers, and what it took at most."""
    codec, make = BOMBS[kind]
    section = make(SIZES.get(kind, 100_000))
    batch = bytes(produced())[:HEADER_SIZE] + section
    bomb = changed(batch, batch_length=len(batch) - LOG_OVERHEAD, attributes=int(codec))
    codes = set()
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory)) as broker:
        for topic, configs in TOPICS.items():
            broker.create_topic(topic, **configs)
        before = peak_mib()
        for topic in [*TOPICS] * 2:
            answer = broker.ask(produce_request(topic, bomb), 12).responses[0].partition_responses[0]
            codes.add(answer.error_code)
        (code,) = codes
    return {"bytes": len(bomb), "code": code, "added_mib": peak_mib() - before}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_refused_and_its_memory_is_bounded(kind: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.unit.broker.test_bombs", kind],
        cwd=Path(__file__).resolve().parents[3],
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(run.stdout)
    assert found["code"] == E.MESSAGE_TOO_LARGE, found
    assert found["bytes"] < MIB
    assert found["added_mib"] < MOST_MIB, found


if __name__ == "__main__":
    print(json.dumps(explode(sys.argv[1])))  # noqa: T201
