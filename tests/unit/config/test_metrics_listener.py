"""Where the metrics endpoint listens, read from its setting."""

import pytest

from config.errors import SettingsError
from config.listen_address import ListenAddress
from config.parse import load_settings


def listener(text: str) -> ListenAddress | None:
    return load_settings(None, [("ottla.prometheus.listener", text)]).settings.ottla_prometheus_listener


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9404", ListenAddress("127.0.0.1", 9404)),
        ("0.0.0.0:0", ListenAddress("0.0.0.0", 0)),
        (":9404", ListenAddress("", 9404)),
        ("[::1]:9404", ListenAddress("::1", 9404)),
        ("localhost:65535", ListenAddress("localhost", 65535)),
        ("  ", None),
    ],
)
def test_an_address_is_read(text: str, expected: ListenAddress | None) -> None:
    assert listener(text) == expected


def test_an_address_is_written_as_it_is_read() -> None:
    assert [str(listener(text)) for text in ("127.0.0.1:1", "[::1]:2", ":3")] == ["127.0.0.1:1", "[::1]:2", ":3"]


@pytest.mark.parametrize(
    "text", ["9404", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "::1:9404", "http://a:1", "a:", ":" + "9" * 5_000]
)
def test_what_is_no_address_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(SettingsError, match=r"ottla.prometheus.listener is '.*', expected host:port with a port"):
        listener(text)
