"""A listener's certificate changes while the broker runs, if the new one will do. Who a client is by a certificate."""

from datetime import timedelta
from pathlib import Path
from ssl import PEM_cert_to_DER_cert

import pytest

from broker.network.transport_errors import HandshakeFailed
from broker.runtime.manual_clock import ManualClock
from broker.security.tls.key_material import Unusable
from broker.security.tls.listeners import TlsListener, TlsListeners
from config.broker_settings import BrokerSettings
from config.errors import SettingsError
from config.parse import load_settings
from config.tls import tls_settings
from tests.support.certificates import YEAR, Authority, Issued, written

AUTHORITY = Authority()
LOCATION = "listener.name.ssl.ssl.keystore.location"


def settings(path: str, **more: str) -> BrokerSettings:
    texts = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM", LOCATION: path, **more}
    return load_settings(None, list(texts.items())).settings


class Broker:
    """TLS of a broker with one listener, and the file with its key."""

    def __init__(self, directory: Path, issued: Issued, **more: str) -> None:
        self.path = directory / "keys.pem"
        self.path.write_text(issued.pem())
        self.tls = TlsListeners(settings(str(self.path), **more), ManualClock(now_ms=_now_ms(issued)))
        self.tls.open({})

    def expires(self) -> float:
        return self.tls.expiry_s()["SSL"]


def _now_ms(issued: Issued) -> int:
    return int(issued.certificate.not_valid_before_utc.timestamp() * 1000) + 2 * 24 * 3600 * 1000


def expiry(issued: Issued) -> float:
    return issued.certificate.not_valid_after_utc.timestamp()


def test_another_file_is_taken_and_the_same_file_is_read_again(tmp_path: Path) -> None:
    first, second, third = (AUTHORITY.issue(lasts=days * timedelta(days=1)) for days in (100, 200, 300))
    broker = Broker(tmp_path, first)
    elsewhere = {LOCATION: written(tmp_path / "second.pem", second.pem())}
    broker.tls.check(elsewhere)
    assert broker.expires() == expiry(first)
    broker.tls.reconfigure(elsewhere)
    assert broker.expires() == expiry(second)
    (tmp_path / "second.pem").write_text(third.pem())
    broker.tls.reconfigure(elsewhere)
    assert broker.expires() == expiry(third)
    broker.tls.reconfigure({})
    assert broker.expires() == expiry(first)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (lambda: AUTHORITY.issue("another").pem(), "Keystore DistinguishedName does not match"),
        (lambda: AUTHORITY.issue(hosts=("localhost",)).pem(), "Keystore SubjectAltNames do not match"),
        (lambda: AUTHORITY.issue().certificate_pem, "has 0 private keys"),
        (lambda: AUTHORITY.issue(lasts=timedelta(minutes=-1)).pem(), "expired on"),
    ],
)
def test_what_will_not_do_is_refused_and_the_old_stays(tmp_path: Path, new: object, words: str) -> None:
    first = AUTHORITY.issue()
    broker = Broker(tmp_path, first)
    assert callable(new)
    elsewhere = {LOCATION: written(tmp_path / "new.pem", new())}
    with pytest.raises(SettingsError, match=words) as refused:
        broker.tls.check(elsewhere)
    assert str(refused.value).startswith("Validation of dynamic config update of SSLFactory failed: ")
    broker.tls.reconfigure(elsewhere)
    assert broker.expires() == expiry(first)


def test_other_names_are_taken_where_they_are_allowed(tmp_path: Path) -> None:
    broker = Broker(tmp_path, AUTHORITY.issue(), **{"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"})
    other = AUTHORITY.issue("another", hosts=(), lasts=YEAR / 2)
    broker.tls.reconfigure({LOCATION: written(tmp_path / "new.pem", other.pem())})
    assert broker.expires() == expiry(other)


def test_trust_changes_but_neither_comes_nor_goes(tmp_path: Path) -> None:
    prefix = "listener.name.ssl.ssl.truststore"
    more = {f"{prefix}.type": "PEM", f"{prefix}.location": written(tmp_path / "ca.pem", AUTHORITY.pem)}
    broker = Broker(tmp_path, AUTHORITY.issue(), **more)
    broker.tls.check({f"{prefix}.location": written(tmp_path / "other.pem", Authority("another").pem)})
    with pytest.raises(SettingsError, match="Cannot remove the SSL truststore"):
        broker.tls.check({f"{prefix}.location": ""})
    with pytest.raises(SettingsError, match="Cannot add SSL truststore"):
        Broker(tmp_path, AUTHORITY.issue()).tls.check(more)


def test_a_file_that_is_gone_is_known_at_the_start_unless_another_has_taken_its_place(tmp_path: Path) -> None:
    tls = TlsListeners(settings("/no/such"), ManualClock(now_ms=_now_ms(AUTHORITY.issue())))
    with pytest.raises(Unusable, match="cannot be read"):
        tls.open({})
    tls.open({LOCATION: written(tmp_path / "new.pem", AUTHORITY.issue().pem())})
    assert tls.expiry_s()


def test_a_client_is_who_its_certificate_says(tmp_path: Path) -> None:
    def principal(rules: str) -> str:
        broker = settings("/keys.pem", **{"ssl.principal.mapping.rules": rules})
        listener = TlsListener(broker.listeners[0], tls_settings(broker.listeners[0], broker.given))
        assert listener.principal_of(None) == "User:ANONYMOUS"
        return listener.principal_of(PEM_cert_to_DER_cert(AUTHORITY.issue("alice").certificate_pem))

    assert principal("DEFAULT") == "User:CN=alice,O=Acme"
    assert principal("RULE:^CN=(.*?),.*$/$1/U") == "User:ALICE"
    with pytest.raises(HandshakeFailed, match=r"no rule of ssl.principal.mapping.rules is for CN=alice,O=Acme"):
        principal("RULE:^OU=(.*)$/$1/")
