"""`ottla features` asks a broker for its levels and raises them, with the login that the broker wants."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.tools import features
from dev.broker_process import BrokerProcess, port_below_client_ports
from tests.support.certificates import written
from tests.support.sasl_broker import SaslBroker
from tests.support.tls_broker import TlsBroker

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="the levels are those of a directory of ours",
)

_MODULES = "org.apache.kafka.common.security"
OF_4_0 = {"metadata.version": "4.0-IV3", "group.version": "1", "transaction.version": "2", "kraft.version": "1"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """A broker with listeners that want certificates and passwords."""
    settings = {
        "ottla.release.version": "4.0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    }
    with TlsBroker(tmp_path_factory.mktemp("secured"), **settings) as broker:
        yield broker


@pytest.fixture
def older(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose directory has the levels of 4.0."""
    settings = {"ottla.release.version": "4.0"}
    with BrokerProcess(tmp_path / "older", port=port_below_client_ports(), settings=settings) as broker:
        yield broker


def finalised(lines: str) -> dict[str, str]:
    """The levels above 0 in the output of `describe`."""
    rows = [dict(zip(words[::2], words[1::2], strict=True)) for words in map(str.split, lines.splitlines())]
    levels = {row["Feature:"]: row["FinalizedVersionLevel:"] for row in rows}
    return {name: level for name, level in levels.items() if level != "0"}


def config_file(directory: Path, **settings: str) -> str:
    lines = [f"{name.replace('_', '.')}={text}\n" for name, text in settings.items()]
    return written(directory / "client.properties", "".join(lines))


def logins(broker: TlsBroker, directory: Path) -> dict[str, tuple[str, dict[str, str]]]:
    """The listener and the client settings for each way in."""
    tls = {"ssl_truststore_type": "PEM", "ssl_truststore_location": broker.trusted}
    key = broker.authority.issue("carol").pem()
    own = {"ssl_keystore_type": "PEM", "ssl_keystore_location": written(directory / "carol.pem", key)}
    plain = f'{_MODULES}.plain.PlainLoginModule required username="alice" password="wonder";'
    return {
        "PLAINTEXT": ("PLAINTEXT", {}),
        "TLS": ("SSL", {"security_protocol": "SSL", **tls}),
        "mutual TLS": ("MUTUAL", {"security_protocol": "SSL", **tls, **own}),
        "PLAIN": (
            "SASL_SSL",
            {"security_protocol": "SASL_SSL", **tls, "sasl_mechanism": "PLAIN", "sasl_jaas_config": plain},
        ),
    }


@pytest.mark.parametrize("way", ["PLAINTEXT", "TLS", "mutual TLS", "PLAIN"])
def test_levels_are_shown_whatever_login_the_broker_wants(
    secured: TlsBroker, way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listener, settings = logins(secured, tmp_path)[way]
    address = secured.bootstrap if listener == "PLAINTEXT" else secured.bootstrap_of(listener)

    code = features.main(["--bootstrap-server", address, "--command-config", config_file(tmp_path, **settings)])

    assert (code, finalised(capsys.readouterr().out)) == (features.DONE, OF_4_0)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_that_the_broker_keeps_salted_is_a_login(
    mechanism: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jaas = f'{_MODULES}.scram.ScramLoginModule required username="dora" password="secret";'
    login = config_file(tmp_path, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_jaas_config=jaas)
    with SaslBroker(tmp_path) as broker:
        broker.set_password("dora", "secret")
        arguments = ["describe", "--bootstrap-server", broker.sasl_bootstrap, "--command-config", login]

        assert features.main(arguments) == features.DONE
        assert finalised(capsys.readouterr().out)["metadata.version"] == "4.4-IV2"

        broker.set_password("dora", "another secret")
        assert features.main(arguments) == features.REFUSED
        assert "refuses the login of dora" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("way", "change", "reason"),
    [
        ("TLS", {"ssl_truststore_location": "the broker's own"}, "certificate verify failed"),
        ("mutual TLS", {"ssl_keystore_location": ""}, "certificate required"),
        ("PLAIN", {"sasl_jaas_config": 'M required username="alice" password="blunder";'}, "Authentication failed"),
        ("PLAIN", {"sasl_mechanism": "SCRAM-SHA-256"}, "refuses the login of alice"),
        ("PLAINTEXT", {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}, "sasl.jaas.config is not"),
    ],
)
def test_a_login_that_fails_says_why(
    secured: TlsBroker,
    way: str,
    change: dict[str, str],
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    listener, settings = logins(secured, tmp_path)[way]
    address = secured.bootstrap if listener == "PLAINTEXT" else secured.bootstrap_of(listener)
    settings |= change
    if settings.get("ssl_truststore_location") == "the broker's own":
        settings["ssl_truststore_location"] = written(tmp_path / "other.pem", secured.authority.issue().certificate_pem)

    code = features.main(["--bootstrap-server", address, "--command-config", config_file(tmp_path, **settings)])

    found = capsys.readouterr()
    assert (code, found.out) == (features.REFUSED, "")
    assert found.err.startswith("ottla features: ")
    assert reason in found.err
    assert "blunder" not in found.err


def test_levels_are_raised_to_those_of_a_release_and_not_lowered(
    older: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = f"127.0.0.1:{port_below_client_ports()}"
    servers = ("--bootstrap-server", f"{nobody},{older.bootstrap}")

    assert features.main(["upgrade", "--release-version", "4.3", *servers]) == features.DONE
    assert capsys.readouterr().out.splitlines() == [
        "eligible.leader.replicas.version was upgraded to 1.",
        "group.version was upgraded to 1.",
        "kraft.version was upgraded to 1.",
        "metadata.version was upgraded to 30.",
        "share.version was upgraded to 1.",
        "streams.version was upgraded to 1.",
        "transaction.version was upgraded to 2.",
    ]
    assert features.main([*servers, "describe"]) == features.DONE
    raised = finalised(capsys.readouterr().out)
    assert raised == OF_4_0 | {
        "metadata.version": "4.3-IV0",
        "eligible.leader.replicas.version": "1",
        "share.version": "1",
        "streams.version": "1",
    }

    assert features.main([*servers, "upgrade", "--release-version", "4.0"]) == features.REFUSED
    assert "Can't downgrade the version of this feature" in capsys.readouterr().err
    features.main([*servers])
    assert finalised(capsys.readouterr().out) == raised


def test_a_broker_that_cannot_be_reached_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    nobody = f"127.0.0.1:{port_below_client_ports()}"

    assert features.main(["--bootstrap-server", nobody]) == features.REFUSED
    assert f"the node at {nobody} cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--bootstrap-server", "here"], "found 'here', expected host:port"),
        (["upgrade"], "required: --release-version"),
        (["upgrade", "--release-version", "4.5"], "found '4.5', expected a release of Kafka from 3.3 to 4.4"),
        (["upgrade", "--release-version", ""], "found nothing, expected a release"),
    ],
)
def test_bad_usage_says_what_is_expected(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        features.main(arguments)

    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
