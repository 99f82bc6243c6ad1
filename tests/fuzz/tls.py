"""A listener with TLS that asks for certificates, and any bytes from a peer that has none: what `tests.fuzz.frames`
promises holds, and nobody is let in.

    how u8: 0 in one piece, n < 64 in pieces of n bytes; +128 hung up at the end | what a peer sends

A record is a type u8, a version u16, a length u16, and as many bytes.
"""

import random
import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from broker.network.tls_transport import RECEIVED_BYTES, TlsTransport
from broker.request.session import ANONYMOUS
from tests.fuzz import frames
from tests.support.certificates import Authority

PACKAGES = ("broker",)
MOST_BYTES = 1500

HELLOS = (
    bytes.fromhex(
        "16030100af010000ab0303786fc4ef712aebcf3402fa2ecc27c1b028dccb6b8ece40ec6e6ce8f4c5356ec700001ec02cc030c02b"
        "c02fcca9cca8c024c028c023c027009f009e006b006700ff010000640000000e000c0000096c6f63616c686f7374000b00040300"
        "0102000a000c000a001d0017001e00190018002300000016000000170000000d002a0028040305030603080708080809080a080b"
        "080408050806040105010601030303010302040205020602"
    ),
    bytes.fromhex(
        "16030100ee010000ea030382b0244d97b4454c8bdbdaa15c7289c39cc337f9b4231a01b7328c5729578e5f202b3636d28a188dc2"
        "9d2db78217a9e59238ddc6c8624ead7a89f722fe73a2028d000813021303130100ff010000990000000e000c0000096c6f63616c"
        "686f7374000b000403000102000a00160014001d0017001e0019001801000101010201030104002300000016000000170000000d"
        "001e001c040305030603080708080809080a080b080408050806040105010601002b0003020304002d0002010100330026002400"
        "1d0020a190e6a34ca4c11d2311ad6f12e860d0c1f0484fe80bd25ad2ad21c3b297662f"
    ),
)
"""The first records of clients of TLS 1.2 and 1.3."""
_CHANGE_CIPHER, _ALERT, _HANDSHAKE, _DATA = range(20, 24)
_HEAD = 5

_victim: frames.Victim | None = None


def _context() -> ssl.SSLContext:
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority.pem)
    with tempfile.TemporaryDirectory() as directory:
        keys = Path(directory) / "keys.pem"
        keys.write_text(authority.issue().pem())
        context.load_cert_chain(keys)
    return context


def check(data: bytes) -> None:
    """Send ``data`` as its first byte says."""
    global _victim
    if not data:
        return
    if _victim is None:
        context, scratch = _context(), memoryview(bytearray(RECEIVED_BYTES))
        _victim = frames.Victim(
            make_transport=lambda wire: TlsTransport(wire, context, lambda shown: f"User:{shown!r}", scratch)
        )
    session = frames.attack(_victim, data)
    assert session.principal == ANONYMOUS, f"{session.principal} was let in"
    topics = _victim.broker.server.metadata.image.topics.by_name
    assert sorted(topics) == ["golden", "orders"], f"there are the topics {sorted(topics)}"
    assert _victim.broker.log("orders").log_end_offset == 0, "a record was written"


def record(kind: int, content: bytes, version: int = 0x0303) -> bytes:
    """One record."""
    return bytes([kind]) + version.to_bytes(2) + len(content).to_bytes(2) + content


def seeds() -> Iterator[bytes]:
    """Hellos whole, in small records and in pieces; what may follow them; what is no TLS."""
    for hello in HELLOS:
        yield b"\0" + hello
        yield b"\7" + hello
        yield bytes([frames.HANGS_UP]) + hello
        content = hello[_HEAD:]
        yield b"\0" + b"".join(record(_HANDSHAKE, content[at : at + 9]) for at in range(0, len(content), 9))
        for behind in (
            record(_CHANGE_CIPHER, b"\1") * 3,
            record(_ALERT, b"\1\0"),
            record(_ALERT, b"\2\50"),
            record(_DATA, bytes(40)),
            record(_HANDSHAKE, bytes.fromhex("0b000007000000000000")),
            record(_HANDSHAKE, bytes.fromhex("1400000c") + bytes(12)),
            record(_DATA, b"") * 40,
            hello,
        ):
            yield b"\0" + hello + behind
    yield b"\0" + record(_HANDSHAKE, b"\1\xff\xff\xff" + bytes(300))
    yield b"\0" + bytes.fromhex("160301ffff") + bytes(100)
    yield b"\0" + bytes.fromhex("802e0103010015000000100000020000030000040000050000060000")
    yield b"\0GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
    yield b"\0" + bytes.fromhex("00000017 0012 0003 00000001 0004 66757a7a 00 05 66757a7a 02 31 00")


def mutate(data: bytes, most_bytes: int, seed: int, any_change: Callable[[bytes, int], bytes]) -> bytes:
    """Change how it is sent, the content of one record (its length made right again), their order, or any bytes."""
    chance = random.Random(seed)
    how, records = data[:1] or b"\0", list(_records(data[1:]))
    if not records or not chance.randrange(8):
        return any_change(data, most_bytes)
    number = chance.randrange(len(records))
    one = records[number]
    match chance.randrange(8):
        case 0:
            how = bytes([chance.choice((0, 1, 3, 5, 17, frames.HANGS_UP, frames.HANGS_UP | 7))])
        case 1:
            records.insert(number, one)
        case 2:
            records[number] = record(chance.choice((*range(20, 25), 0, 255)), one[_HEAD:])
        case 3:
            cut = chance.randrange(_HEAD, len(one) + 1)
            records[number : number + 1] = [record(one[0], one[_HEAD:cut]), record(one[0], one[cut:])]
        case _:
            records[number] = record(one[0], any_change(one[_HEAD:], most_bytes), int.from_bytes(one[1:3]))
    return (how + b"".join(records))[:most_bytes]


def _records(stream: bytes) -> Iterator[bytes]:
    position = 0
    while len(stream) - position >= _HEAD:
        end = position + _HEAD + int.from_bytes(stream[position + 3 : position + _HEAD])
        if end > len(stream):
            return
        yield stream[position:end]
        position = end
