"""Metrics of listeners with TLS: when their certificates expire."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.broker import InProcessBroker, running_broker
from tests.support.certificates import Authority, written
from tests.support.metrics import scrape

EXPIRY = 'ottla_tls_certificate_expiry_timestamp_seconds{listener="SSL"}'
SINCE = datetime(2023, 11, 14, tzinfo=UTC)
"""Where the clock of tests begins."""


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[InProcessBroker]:
    issued = Authority().issue(since=SINCE, lasts=timedelta(days=40))
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": written(tmp_path / "keys.pem", issued.pem()),
    }
    with running_broker(tmp_path / "data", **settings) as broker:
        yield broker


def test_a_listener_says_when_its_certificate_expires(tls: InProcessBroker) -> None:
    assert scrape(tls)[EXPIRY] == (SINCE + timedelta(days=40)).timestamp()


def test_a_broker_without_tls_says_nothing(broker: InProcessBroker) -> None:
    assert EXPIRY.partition("{")[0] not in {name for name, _ in scrape(broker).values}
