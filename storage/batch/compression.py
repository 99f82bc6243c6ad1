"""Compressed record sections: four codecs, each in the container that Kafka's clients write, opened within bounds.

    gzip     one gzip member (several are read)
    snappy   xerial: 82 53 4e 41 50 50 59 00, version i32 = 1, compatible i32 = 1, then blocks {length i32, raw snappy}
             of 32 KiB each; raw snappy without any container is read too (librdkafka and older clients send it)
    lz4      one LZ4 frame, independent blocks of 64 KiB, no content size, no content checksum (any frame is read)
    zstd     one frame that states its content size (several, without it too, are read)

The libraries are imported when first needed: most brokers never open a compressed batch.
"""

import zlib
from struct import Struct
from typing import TYPE_CHECKING, Final, assert_never

from storage.batch.record_batch import Buffer, Codec
from storage.errors import DecompressionTooLarge, UndecodableRecords

if TYPE_CHECKING:
    import zstandard

_GZIP_CONTAINER: Final = 16 + zlib.MAX_WBITS
_GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
"""The gzip header without name, time and operating system: the ten bytes that the Java client writes."""
_GZIP_TRAILER: Final = Struct("<II")

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH: Final = Struct(">i")
_SNAPPY_MOST_GAIN: Final = 22
"""Raw snappy's best element makes 64 bytes of 3, so a longer claim is a lie and not worth an allocation."""

_LZ4_DEFAULT_LEVEL: Final = 9
_ZSTD_DEFAULT_LEVEL: Final = 3
_ZSTD_INPUT_BYTES: Final = 512
"""The library opens all that it is given; 4 bytes of zstd may mean 128 KiB, so these slices overshoot by 16 MiB."""
_LZ4_OUTPUT_BYTES: Final = 1 << 20

_idle_zstd: "list[zstandard.ZstdDecompressor]" = []
"""Idle decompressors: as many as threads have ever decompressed at the same time."""


def compress(codec: Codec, payload: Buffer, level: int | None = None) -> bytes:
    """Compress `payload` into the codec's container; `level` as in Kafka, None: the default (gzip 6, lz4 9, zstd 3)."""
    match codec:
        case Codec.NONE:
            return bytes(payload)
        case Codec.GZIP:
            deflater = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, -zlib.MAX_WBITS)
            trailer = _GZIP_TRAILER.pack(zlib.crc32(payload), len(payload) & 0xFFFFFFFF)
            return b"".join((_GZIP_HEADER, deflater.compress(payload), deflater.flush(), trailer))
        case Codec.SNAPPY:
            return _compress_xerial(payload)
        case Codec.LZ4:
            return _compress_lz4(payload, _LZ4_DEFAULT_LEVEL if level is None else level)
        case Codec.ZSTD:
            import zstandard

            # The frame states its size: kafka-python opens no more than 1 MB of one that does not.
            return zstandard.ZstdCompressor(level=_ZSTD_DEFAULT_LEVEL if level is None else level).compress(payload)
        case _:
            assert_never(codec)


def decompress(codec: Codec, payload: Buffer, most_bytes: int) -> bytes:
    """Decompress `payload` to at most `most_bytes` bytes.

    Raises DecompressionTooLarge beyond that, having held little more than `most_bytes` (zstd: up to 16 MiB, and the
    frame's own window of 128 MiB at most), and UndecodableRecords if the data are damaged or cut short.
    """
    match codec:
        case Codec.NONE:
            if len(payload) > most_bytes:
                raise _too_large(codec, payload, most_bytes)
            return bytes(payload)
        case Codec.GZIP:
            return _decompress_gzip(payload, most_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(payload, most_bytes)
        case Codec.LZ4:
            return _decompress_lz4(payload, most_bytes)
        case Codec.ZSTD:
            return _decompress_zstd(payload, most_bytes)
        case _:
            assert_never(codec)


def _too_large(codec: Codec, payload: Buffer, most_bytes: int) -> DecompressionTooLarge:
    return DecompressionTooLarge(
        f"{len(payload)} bytes of {codec.name.lower()} open to more than {most_bytes} bytes, the most that is held"
    )


def _damaged(codec: Codec, payload: Buffer, reason: object) -> UndecodableRecords:
    return UndecodableRecords(f"{len(payload)} bytes of {codec.name.lower()} cannot be opened: {reason}")


def _decompress_gzip(payload: Buffer, most_bytes: int) -> bytes:
    members: list[bytes] = []
    room = most_bytes
    rest: Buffer = payload
    try:
        while True:
            inflater = zlib.decompressobj(_GZIP_CONTAINER)
            # One byte more than the limit distinguishes a full buffer from an overfull one.
            member = inflater.decompress(rest, room + 1)
            room -= len(member)
            if room < 0:
                raise _too_large(Codec.GZIP, payload, most_bytes)
            if not inflater.eof:
                raise _damaged(Codec.GZIP, payload, "the stream is cut short")
            members.append(member)
            rest = inflater.unused_data
            if not rest:
                return members[0] if len(members) == 1 else b"".join(members)
    except zlib.error as error:
        raise _damaged(Codec.GZIP, payload, error) from None


def _compress_xerial(payload: Buffer) -> bytes:
    import cramjam

    parts = [_XERIAL_HEADER]
    view = memoryview(payload)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(payload: Buffer, most_bytes: int) -> bytes:
    data = bytes(payload)
    if not data.startswith(_XERIAL_MAGIC):
        return _open_raw_snappy(data, payload, most_bytes)[0]
    blocks: list[bytes] = []
    room = most_bytes
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise _damaged(Codec.SNAPPY, payload, "the container's header is cut short")
    while position < len(data):
        # Containers that were joined end to end are one stream, as for the Java reader.
        if data.startswith(_XERIAL_MAGIC, position):
            position += len(_XERIAL_HEADER)
            continue
        length = int.from_bytes(data[position : position + 4], signed=True)
        start = position + 4
        position = start + length
        if length < 0 or position > len(data):
            raise _damaged(Codec.SNAPPY, payload, f"a block of {length} bytes at {start} of {len(data)}")
        block, room = _open_raw_snappy(data[start:position], payload, most_bytes, room)
        blocks.append(block)
    return b"".join(blocks)


def _open_raw_snappy(block: bytes, payload: Buffer, most_bytes: int, room: int | None = None) -> tuple[bytes, int]:
    """One decompressed block of raw snappy and the rest of the limit. A block begins with its decompressed length."""
    import cramjam

    if room is None:
        room = most_bytes
    claimed = shift = 0
    for byte in block[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if claimed > len(block) * _SNAPPY_MOST_GAIN:
        raise _damaged(Codec.SNAPPY, payload, f"{len(block)} bytes claim to open to {claimed}")
    if claimed > room:
        raise _too_large(Codec.SNAPPY, payload, most_bytes)
    try:
        return bytes(cramjam.snappy.decompress_raw(block)), room - claimed
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.SNAPPY, payload, error) from None


def _compress_lz4(payload: Buffer, level: int) -> bytes:
    import lz4.frame

    compressed: bytes = lz4.frame.compress(
        bytes(payload),
        # Kafka's default level 9 means its fast compressor, every other number the high-compression one.
        compression_level=0 if level == _LZ4_DEFAULT_LEVEL else max(level, lz4.frame.COMPRESSIONLEVEL_MINHC),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _decompress_lz4(payload: Buffer, most_bytes: int) -> bytes:
    import lz4.frame

    parts: list[bytes] = []
    room = most_bytes
    rest: Buffer = payload
    frame = lz4.frame.LZ4FrameDecompressor()
    try:
        while True:
            # The library allocates all that it is allowed to return, so it is asked for little at a time.
            part = frame.decompress(rest, max_length=min(room + 1, _LZ4_OUTPUT_BYTES))
            room -= len(part)
            if room < 0:
                raise _too_large(Codec.LZ4, payload, most_bytes)
            parts.append(part)
            if frame.eof:
                # What stands behind the frame is not read, by the Java client neither.
                return parts[0] if len(parts) == 1 else b"".join(parts)
            if frame.needs_input or not part:
                raise _damaged(Codec.LZ4, payload, "the frame is cut short")
            rest = b""
    except (RuntimeError, ValueError, EOFError) as error:
        raise _damaged(Codec.LZ4, payload, error) from None


def _decompress_zstd(payload: Buffer, most_bytes: int) -> bytes:
    import zstandard

    view = memoryview(payload)
    parts: list[bytes] = []
    room = most_bytes
    position = 0
    # One serves one stream at a time; making it costs 30 times what opening a batch of one record does.
    decompressor = _idle_zstd.pop() if _idle_zstd else zstandard.ZstdDecompressor()
    frame = decompressor.decompressobj()
    try:
        while True:
            part = frame.decompress(view[position : position + _ZSTD_INPUT_BYTES])
            position += _ZSTD_INPUT_BYTES
            room -= len(part)
            if room < 0:
                raise _too_large(Codec.ZSTD, payload, most_bytes)
            parts.append(part)
            if frame.eof:
                position = min(position, len(view)) - len(frame.unused_data)
                if position == len(view):
                    return b"".join(parts)
                frame = decompressor.decompressobj()
            elif position >= len(view):
                raise _damaged(Codec.ZSTD, payload, "the frame is cut short")
    except zstandard.ZstdError as error:
        raise _damaged(Codec.ZSTD, payload, error) from None
    finally:
        _idle_zstd.append(decompressor)
