"""Seeds go to the partitions that Java's client chooses."""

import pytest

from broker.control.partitioner import murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "hash_"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_have_javas_hash(key: bytes, hash_: int) -> None:
    assert murmur2(key) == hash_ & 0xFFFFFFFF
    assert partition_of_key(key, 7) == (hash_ & 0x7FFFFFFF) % 7
