"""Metrics of listeners with TLS: when their certificates expire."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.broker import InProcessBroker, running_broker
from tests.support.certificates import CLOCK_BEGINS, Authority, tls_of_listeners
from tests.support.metrics import scrape

EXPIRY = 'ottla_tls_certificate_expiry_timestamp_seconds{listener="SSL"}'


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[InProcessBroker]:
    issued = Authority().issue(since=CLOCK_BEGINS, lasts=timedelta(days=40))
    listeners = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
    with running_broker(tmp_path / "data", listeners=listeners, **tls_of_listeners(tmp_path, issued)) as broker:
        yield broker


def test_a_listener_says_when_its_certificate_expires(tls: InProcessBroker) -> None:
    assert scrape(tls)[EXPIRY] == (CLOCK_BEGINS + timedelta(days=40)).timestamp()


def test_a_broker_without_tls_says_nothing(broker: InProcessBroker) -> None:
    assert EXPIRY.partition("{")[0] not in {name for name, _ in scrape(broker).values}
