"""`ottla cert`: files that both ends can use, and settings to copy."""

import os
import ssl
from pathlib import Path

import pytest

from broker.security.tls.context import load
from broker.tools.cert import main
from config.listeners import Listener
from config.sources import read_settings_file
from config.tls import tls_settings

LISTENER = Listener(name="SSL", host="", port=9093, security_protocol="SSL")


def indented(text: str, title: str) -> str:
    """The lines that are printed below a title."""
    behind = text.split(f"{title}", 1)[1].split("\n\n", 1)[1]
    return "\n".join(line.strip() for line in behind.split("\n\n")[0].splitlines())


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> bytes | None:
    """Let both ends shake hands in memory; return the client's certificate as the server sees it."""
    ways = [ssl.MemoryBIO() for _ in range(2)]
    ends = [
        client.wrap_bio(ways[0], ways[1], server_hostname=host),
        server.wrap_bio(ways[1], ways[0], server_side=True),
    ]
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[1].getpeercert(binary_form=True)


def test_the_printed_settings_make_a_listener_that_the_client_can_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys"
    assert main([str(keys), "broker.example", "192.0.2.10", "--client", "alice"]) == 0
    printed = capsys.readouterr().out
    (tmp_path / "server.properties").write_text(indented(printed, "The broker"))
    given = read_settings_file(str(tmp_path / "server.properties"))
    assert given["advertised.listeners"] == "SSL://broker.example:9093"
    authority = ssl.PEM_cert_to_DER_cert((keys / "authority.pem").read_text())
    now_ms = int(os.stat(keys).st_mtime * 1000)
    server = load(tls_settings(LISTENER, given), now_ms)
    assert server.certificate.subject == "CN=broker.example,O=Ottla"
    assert server.trusted == (authority,)
    client = ssl.create_default_context(cafile=str(keys / "authority.pem"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_cert_chain(keys / "alice.pem")
    for host in ("broker.example", "192.0.2.10"):
        assert handshake(server.context, client, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server.context, client, "elsewhere.example")
    for words in (f"ssl.ca.location={keys}/authority.pem", f'ssl_certfile="{keys}/alice.pem"', "kafka-python"):
        assert words in printed


def test_keys_are_the_owners_and_the_authority_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "localhost"]) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name for name in before if (tmp_path / name).stat().st_mode & 0o077} == {"authority.pem"}
    assert main([str(tmp_path), "localhost"]) == 0
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name for name in before if before[name] == after[name]} == {"authority.pem", "authority.key"}
    assert "has signed new certificates" in capsys.readouterr().out


def test_what_cannot_be_done_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "authority.key").write_text("nonsense")
    (tmp_path / "authority.pem").write_text("nonsense")
    assert main([str(tmp_path), "localhost"]) == 1
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file"), "localhost"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith(f"ottla cert: {tmp_path}") for line in lines)
    for wrong in (["not a host"], ["localhost", "--days", "0"], ["localhost", "--client", "../x"]):
        with pytest.raises(SystemExit):
            main([str(tmp_path / "new"), *wrong])
    assert not (tmp_path / "new").exists()
