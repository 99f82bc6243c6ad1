"""Recompressing a records section to the same bytes as its producer's, where the codec's library allows it.

A producer's choices stand in the first bytes of what it wrote, its head: in gzip time and operating system, in lz4 the
size of blocks and what is checked, in zstd whether the size is stated. The level is not recorded, so levels are tried.

    gzip     10 bytes, no more fields than those     zlib at the level
    snappy   16 bytes of xerial, or none: raw        blocks of 32 KiB, or one
    lz4      the frame's descriptor, 7 to 15 bytes   lz4 at the level, 0 being the fast one
    zstd     the first 6 bytes                       one frame at the level, with its size or without
"""

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Final

from storage.batch.compression import compress
from storage.batch.record_batch import Codec

_GZIP_MAGIC: Final = b"\x1f\x8b\x08\x00"
_GZIP_HEAD_BYTES: Final = 10
_GZIP_TRAILER: Final = Struct("<II")
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES: Final = 16
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_VERSION: Final = 0x40
_LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUM, _LZ4_SIZE, _LZ4_CHECKSUM = 0x20, 0x10, 0x08, 0x04
_LZ4_DESCRIPTOR_BYTES: Final = 7
_LZ4_SIZE_BYTES: Final = 8
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_HEAD_BYTES: Final = 6
_ZSTD_SINGLE_SEGMENT, _ZSTD_SIZE, _ZSTD_CHECKSUM = 0x20, 0xC0, 0x04

LEVELS: Final = {
    # The levels that clients use by default come first; -1 is zlib's own default, which is 6.
    Codec.GZIP: (-1, 9, 1),
    Codec.SNAPPY: (0,),
    Codec.LZ4: (0,),
    Codec.ZSTD: (3, 1),
}
"""The compression levels that are tried, by codec."""


def head_of(codec: Codec, payload: bytes) -> bytes | None:
    """The first bytes of ``payload``, which show the compressor's options; None if they are not known ones."""
    if codec is Codec.GZIP:
        return payload[:_GZIP_HEAD_BYTES] if payload.startswith(_GZIP_MAGIC) else None
    if codec is Codec.SNAPPY:
        return payload[:_XERIAL_HEAD_BYTES] if payload.startswith(_XERIAL_MAGIC) else b""
    if codec is Codec.LZ4:
        if not payload.startswith(_LZ4_MAGIC) or len(payload) < _LZ4_DESCRIPTOR_BYTES:
            return None
        # With a dictionary, or of another version, it is nothing that a producer makes.
        if payload[4] & ~(_LZ4_INDEPENDENT | _LZ4_BLOCK_CHECKSUM | _LZ4_SIZE | _LZ4_CHECKSUM) != _LZ4_VERSION:
            return None
        return payload[: _LZ4_DESCRIPTOR_BYTES + (_LZ4_SIZE_BYTES if payload[4] & _LZ4_SIZE else 0)]
    if codec is Codec.ZSTD:
        return payload[:_ZSTD_HEAD_BYTES] if payload.startswith(_ZSTD_MAGIC) else None
    return None


def recompress(codec: Codec, head: bytes, level: int, section: bytes) -> bytes:
    """Compress ``section`` like a producer whose payloads begin with ``head``."""
    return _MAKERS[codec](head, level, section)


def _gzip(head: bytes, level: int, section: bytes) -> bytes:
    deflater = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    trailer = _GZIP_TRAILER.pack(zlib.crc32(section), len(section) & 0xFFFFFFFF)
    return b"".join((head, deflater.compress(section), deflater.flush(), trailer))


def _snappy(head: bytes, level: int, section: bytes) -> bytes:
    if head:
        return head + compress(Codec.SNAPPY, section)[_XERIAL_HEAD_BYTES:]
    import cramjam

    return bytes(cramjam.snappy.compress_raw(section))


def _lz4(head: bytes, level: int, section: bytes) -> bytes:
    import lz4.frame

    flags = head[4]
    payload: bytes = lz4.frame.compress(
        section,
        compression_level=level,
        block_size=head[5] >> 4 & 0x07,
        block_linked=not flags & _LZ4_INDEPENDENT,
        block_checksum=bool(flags & _LZ4_BLOCK_CHECKSUM),
        content_checksum=bool(flags & _LZ4_CHECKSUM),
        store_size=bool(flags & _LZ4_SIZE),
    )
    return payload


def _zstd(head: bytes, level: int, section: bytes) -> bytes:
    import zstandard

    flags = head[4]
    tells_size = bool(flags & (_ZSTD_SINGLE_SEGMENT | _ZSTD_SIZE))
    compressor = zstandard.ZstdCompressor(
        level=level, write_content_size=tells_size, write_checksum=bool(flags & _ZSTD_CHECKSUM)
    )
    if tells_size:
        return compressor.compress(section)
    # A frame without its size was begun before the size was known.
    frame = compressor.compressobj()
    return frame.compress(section) + frame.flush()


_MAKERS: Final[dict[Codec, Callable[[bytes, int, bytes], bytes]]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
