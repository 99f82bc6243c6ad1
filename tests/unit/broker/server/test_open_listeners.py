"""Listeners on which other machines can connect without authentication are named at the start."""

import logging
from pathlib import Path

import pytest

from tests.support.broker import running_broker
from tests.support.certificates import CLOCK_BEGINS, Authority, tls_of_listeners, written


def test_tls_without_certificates_of_clients_is_no_authentication(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    trusted = written(tmp_path / "authority.pem", authority.pem)
    names = {"OPEN": "PLAINTEXT", "HERE": "PLAINTEXT", "HIDDEN": "SSL", "ASKED": "SSL", "MUTUAL": "SSL"}
    settings = {
        "listeners": ",".join(f"{name}://{'127.0.0.1' if name == 'HERE' else '0.0.0.0'}:0" for name in names),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in names.items()),
        "inter.broker.listener.name": "HERE",
        "advertised.listeners": ",".join(f"{name}://localhost:9092" for name in names),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trusted,
        "listener.name.asked.ssl.client.auth": "requested",
        "listener.name.mutual.ssl.client.auth": "required",
        **tls_of_listeners(tmp_path, authority.issue(since=CLOCK_BEGINS)),
    }
    with caplog.at_level(logging.WARNING), running_broker(tmp_path / "data", **settings):
        pass
    (said,) = [one.getMessage() for one in caplog.records if "without authentication" in one.getMessage()]
    assert [name for name in names if f"{name}://" in said] == ["OPEN", "HIDDEN", "ASKED"]
