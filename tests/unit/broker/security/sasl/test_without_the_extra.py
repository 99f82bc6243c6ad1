"""A broker that is to check signed tokens, where the library for it is not installed."""

import sys
from pathlib import Path

import pytest

from broker.server.broker_server import CannotStart
from tests.support.broker import InProcessBroker
from tests.support.sasl_client import LISTENERS

SIGNED = {
    **LISTENERS,
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json",
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
    "sasl.oauthbearer.expected.audience": "kafka",
}


def test_the_start_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    for name in ("broker.security.sasl.signatures", "broker.security.sasl.jwks"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(CannotStart, match=r"^the listener SASL has OAUTHBEARER, .*: install ottla\[oauthbearer\]$"):
        InProcessBroker(tmp_path / "data", **SIGNED)
