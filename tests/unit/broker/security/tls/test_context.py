"""Keys and certificates in every form that Kafka takes, and a sentence for every one that cannot be used."""

import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.security.tls.certificate import parse_certificate
from broker.security.tls.context import Loaded, load, openssl_name
from broker.security.tls.der import MalformedDer
from broker.security.tls.key_material import Unusable
from config.listeners import Listener
from config.tls import tls_settings
from tests.support.certificates import Authority, written

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("broker")
NOW = datetime.now(UTC)
LISTENER = Listener(name="SSL", host="", port=9093, security_protocol="SSL")


def loaded(**texts: str) -> Loaded:
    given = {"ssl.keystore.type": "PEM", **texts}
    return load(tls_settings(LISTENER, given), int(NOW.timestamp() * 1000))


def refusal(**texts: str) -> str:
    with pytest.raises(Unusable) as refused:
        loaded(**texts)
    assert "geheim" not in str(refused.value)
    return str(refused.value)


def test_a_file_of_pem_has_key_and_certificates(tmp_path: Path) -> None:
    certificate = loaded(**{"ssl.keystore.location": written(tmp_path / "k.pem", BROKER.pem())}).certificate
    assert certificate.subject == "CN=broker,O=Acme"
    assert certificate.not_after_ms == int(BROKER.certificate.not_valid_after_utc.timestamp() * 1000)
    assert len(certificate.alternative_names) == 2


def test_pem_may_stand_in_the_settings_with_spaces_for_ends_of_lines() -> None:
    for key in (BROKER.key_pem(), BROKER.key_pem().replace("\n", " ")):
        chain = (BROKER.certificate_pem + BROKER.authority_pem).replace("\n", " ")
        assert loaded(**{"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}).key.chain


def test_a_key_may_have_a_password(tmp_path: Path) -> None:
    location = {"ssl.keystore.location": written(tmp_path / "k.pem", BROKER.pem("geheim"))}
    assert loaded(**location, **{"ssl.key.password": "geheim"})
    assert "has a password, expected it in ssl.key.password" in refusal(**location)
    assert "cannot be opened with ssl.key.password" in refusal(**location, **{"ssl.key.password": "geheimer"})


@pytest.mark.parametrize("type_", ["PKCS12", "JKS"])
def test_pkcs12_has_them_too_and_java_reads_it_as_jks(tmp_path: Path, type_: str) -> None:
    path = tmp_path / "keys.p12"
    path.write_bytes(BROKER.pkcs12("geheim"))
    texts = {"ssl.keystore.type": type_, "ssl.keystore.location": str(path), "ssl.keystore.password": "geheim"}
    assert [parse_certificate(der).subject for der in loaded(**texts).key.chain] == [
        "CN=broker,O=Acme",
        "CN=authority,O=Acme",
    ]
    trusted = {"ssl.truststore.type": "PKCS12", "ssl.truststore.location": str(path)}
    assert len(loaded(**texts, **trusted, **{"ssl.truststore.password": "geheim"}).trusted) == 2
    assert "cannot be opened with its password" in refusal(**{**texts, "ssl.keystore.password": "geheimer"})


def test_pkcs12_without_the_extra_is_a_sentence_with_two_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    path = tmp_path / "keys.p12"
    path.write_bytes(BROKER.pkcs12("geheim"))
    sentence = refusal(
        **{"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(path), "ssl.keystore.password": "geheim"}
    )
    assert "install ottla[tls], or convert it to PEM: openssl pkcs12 -in" in sentence


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    def file(text: str | bytes) -> dict[str, str]:
        path = tmp_path / "keys"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return {"ssl.keystore.location": str(path)}

    where = f"ssl.keystore.location={tmp_path / 'keys'}"
    assert refusal(**{"ssl.keystore.location": "/no/such"}) == (
        "ssl.keystore.location=/no/such cannot be read: No such file or directory"
    )
    assert refusal(**{"ssl.keystore.location": str(tmp_path)}).endswith("cannot be read: Is a directory")
    assert refusal(**file(BROKER.certificate_pem)) == f"{where} has 0 private keys in PEM, expected one"
    assert refusal(**file(BROKER.key_pem())) == f"{where} has no certificate in PEM"
    assert refusal(**file(bytes(1 << 21))) == f"{where} has more than 1048576 bytes, expected keys or certificates"
    assert "is a JKS file, which only Java reads; convert it: keytool" in refusal(**file(b"\xfe\xed\xfe\xed"))
    other = AUTHORITY.issue("other")
    assert refusal(**file(other.key_pem() + BROKER.certificate_pem)) == (
        "the certificate and the private key of ssl.keystore.location do not match"
    )
    damaged = BROKER.certificate_pem.replace("MII", "MIX", 1)
    assert "a certificate of ssl.keystore.location is none" in refusal(**file(BROKER.key_pem() + damaged))
    password = {"ssl.keystore.type": "JKS", "ssl.keystore.password": "geheim"}
    assert "it looks like PEM, for which the type is PEM" in refusal(**file(BROKER.pem()), **password)


def test_a_certificate_that_is_not_valid_now_is_refused(tmp_path: Path) -> None:
    for since, lasts, words in (
        (NOW - timedelta(days=30), timedelta(days=10), "expired on"),
        (NOW + timedelta(days=30), timedelta(days=10), "is not valid before"),
    ):
        issued = AUTHORITY.issue(since=since, lasts=lasts)
        sentence = refusal(**{"ssl.keystore.location": written(tmp_path / "k.pem", issued.pem())})
        assert f"the certificate of ssl.keystore.location (CN=broker,O=Acme) {words} " in sentence


def test_a_certificate_that_is_cut_is_malformed() -> None:
    whole = ssl.PEM_cert_to_DER_cert(BROKER.certificate_pem)
    for end in range(len(whole)):
        with pytest.raises(MalformedDer):
            parse_certificate(whole[:end])


def test_ciphers_have_the_names_of_java(tmp_path: Path) -> None:
    location = {"ssl.keystore.location": written(tmp_path / "k.pem", BROKER.pem())}

    def versions(suites: str) -> tuple[str, str, set[str]]:
        context = loaded(**location, **{"ssl.cipher.suites": suites}).context
        older = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2"}
        return context.minimum_version.name, context.maximum_version.name, older

    gcm = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    of_1_3 = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"
    assert versions(gcm) == ("TLSv1_2", "TLSv1_2", {"ECDHE-ECDSA-AES128-GCM-SHA256"})
    assert versions(of_1_3)[:2] == ("TLSv1_3", "TLSv1_3")
    assert versions(f"{of_1_3},{gcm}") == ("TLSv1_2", "TLSv1_3", {"ECDHE-ECDSA-AES128-GCM-SHA256"})
    assert "Python cannot choose among them" in refusal(**location, **{"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"})
    assert "has TLS_NONSENSE, which this OpenSSL" in refusal(**location, **{"ssl.cipher.suites": "TLS_NONSENSE"})
    both = {"ssl.cipher.suites": gcm, "ssl.enabled.protocols": "TLSv1.3"}
    assert "no suite for any version" in refusal(**location, **both)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
    ],
)
def test_each_java_name_is_one_of_openssl(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(openssl)
