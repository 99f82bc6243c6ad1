"""Frames that are not requests, or not whole, or not ours to answer."""

import struct

from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.parity.exchange import Exchange

ANSWER = (ApiVersionsResponse, 0)
HEADER = struct.Struct(">hhih")


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def header(key: int, version: int, *, tags: bytes = b"") -> bytes:
    return HEADER.pack(key, version, 7, 4) + b"test" + tags


def run(exchange: Exchange) -> None:
    for size in (0, -1, -0x8000_0000, 104_857_601, 0x7FFF_FFFF):
        exchange.send_bytes(f"a size of {size}", struct.pack(">i", size) + b"\0" * 8, api=18)
    for length in range(1, 10):
        exchange.send_bytes(f"a request of {length} bytes", framed(header(18, 0)[:length]), api=18)
    exchange.send_bytes("two of four bytes of a size, then nothing", b"\0\0", api=18, then_nothing=True)
    exchange.send_bytes("half a request, then nothing", framed(header(18, 0))[:9], api=18, then_nothing=True)

    for key in (-0x8000, -5, -1, 95, 999, 0x7FFF):
        exchange.send_bytes("an unknown key", framed(header(key, 0)), api=key)
    for key, name in ((4, "LeaderAndIsr"), (5, "StopReplica"), (6, "UpdateMetadata"), (7, "ControlledShutdown")):
        exchange.send_bytes(f"{name}, which is gone", framed(header(key, 0) + b"\0" * 20), api=key)
    for key, name in ((52, "Vote"), (58, "Envelope"), (62, "BrokerRegistration"), (63, "BrokerHeartbeat")):
        exchange.send_bytes(
            f"{name}, which is the controllers'", framed(header(key, 0, tags=b"\0") + b"\0" * 20), api=key
        )
    for key, version in ((0, 0), (0, 1), (0, 2), (0, 14), (1, 3), (1, 19), (2, 0), (2, 12), (3, 14), (3, -1), (19, 1)):
        exchange.send_bytes(f"version {version}", framed(header(key, version, tags=b"\0") + b"\0" * 20), api=key)
    for key, version in ((19, 8), (20, 0), (20, 7), (21, 3), (22, 6), (23, 1), (23, 5), (32, 0), (32, 5), (37, 4)):
        exchange.send_bytes(f"version {version}", framed(header(key, version, tags=b"\0") + b"\0" * 20), api=key)
    for key, version in ((33, 3), (35, 0), (35, 6), (44, 2), (46, 1), (55, 3), (60, 3), (75, 1)):
        exchange.send_bytes(f"version {version}", framed(header(key, version, tags=b"\0") + b"\0" * 20), api=key)

    # Bodies
    all_topics = MetadataRequest(topics=None)
    for version in (8, 12):
        answer = (MetadataResponse, version)
        whole = exchange.frame(MetadataRequest(topics=[], allow_auto_topic_creation=False), version)[4:]
        exchange.send_bytes("bytes behind a complete body", framed(whole + b"rest"), api=3, answer=answer)
        exchange.send_bytes(f"version {version}, the last byte missing", framed(whole[:-1]), api=3)
        exchange.send_bytes(
            f"version {version}, no body", framed(header(3, version, tags=b"\0" * (version > 8))), api=3
        )
    exchange.send_bytes("version 0, null for the topics", framed(header(3, 0) + b"\xff" * 4), api=3)
    for count in (1, 1000, 0x7FFF_FFFF):
        body = struct.pack(">i", count)
        exchange.send_bytes(f"version 1, {count} topics announced", framed(header(3, 1) + body), api=3)
    for count in (-1, -2, -0x8000_0000):
        body = framed(header(3, 1) + struct.pack(">i", count))
        exchange.send_bytes(f"{count} topics announced", body, api=3, answer=(MetadataResponse, 1))
    exchange.send_bytes("version 1, a name of null", framed(header(3, 1) + b"\0\0\0\1\xff\xff"), api=3)
    exchange.send_bytes("version 1, a name of length -2", framed(header(3, 1) + b"\0\0\0\1\xff\xfe"), api=3)
    exchange.send_bytes("version 1, a name longer than the rest", framed(header(3, 1) + b"\0\0\0\1\x01\0ab"), api=3)
    exchange.send_bytes(
        "version 9, a count of six bytes", framed(header(3, 9, tags=b"\0") + b"\xff\xff\xff\xff\xff\x01"), api=3
    )
    exchange.send_bytes(
        "version 9, a count of 2**32 - 1", framed(header(3, 9, tags=b"\0") + b"\xff\xff\xff\xff\x0f"), api=3
    )
    none = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    for what, boolean in (("true as 7", b"\x07"), ("true as 255", b"\xff")):
        body = exchange.frame(none, 8)[4:-3] + boolean + b"\0\0"
        exchange.send_bytes(f"a boolean {what}", framed(body), api=3, answer=(MetadataResponse, 8))

    # Headers
    whole = exchange.frame(all_topics, 12)[4:]
    body = whole[len(HEADER.pack(0, 0, 0, 0)) + len("parity") + 1 :]
    for what, tags in (
        ("an unknown tag", b"\1\x0a\2ab"),
        ("two unknown tags, descending", b"\2\x0a\1a\x09\1b"),
        ("the same unknown tag twice", b"\2\x0a\1a\x0a\1b"),
    ):
        frame = framed(header(3, 12, tags=tags) + body)
        exchange.send_bytes(f"a header with {what}", frame, api=3, answer=(MetadataResponse, 12))
    exchange.send_bytes("a header whose tag is longer than the rest", framed(header(3, 12, tags=b"\1\x0a\x7f")), api=3)
    unnamed = HEADER.pack(18, 0, 7, -1)
    exchange.send_bytes("a client id of null", framed(unnamed), api=18, answer=ANSWER)
    exchange.send_bytes("a client id of length -2", framed(HEADER.pack(18, 0, 7, -2)), api=18, answer=ANSWER)
    exchange.send_bytes("a client id longer than the rest", framed(HEADER.pack(18, 0, 7, 5) + b"ab"), api=18)
    exchange.send_bytes(
        "a client id that is not UTF-8", framed(HEADER.pack(18, 0, 7, 2) + b"\xff\xfe"), api=18, answer=ANSWER
    )
    long_id = HEADER.pack(18, 0, 7, 0x7FFF) + b"x" * 0x7FFF
    exchange.send_bytes("a client id of 32767 bytes", framed(long_id), api=18, answer=ANSWER)
    body = framed(header(3, 1) + b"\0\0\0\1\0\2\xff\xfe")
    exchange.send_bytes("a name that is not UTF-8", body, api=3, answer=(MetadataResponse, 1))
    software = exchange.frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)[4:]
    exchange.send_bytes(
        "version 3 with bytes behind it", framed(software + b"rest"), api=18, answer=(ApiVersionsResponse, 3)
    )
    exchange.send_bytes("version 3, the tags missing", framed(software[:-1]), api=18)
