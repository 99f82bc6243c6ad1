"""ApiVersions: what is served, to whom, and what is answered to a version that is not."""

from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.parity.exchange import Exchange

V0_ANSWER = (ApiVersionsResponse, 0)


def run(exchange: Exchange) -> None:
    named = ApiVersionsRequest(client_software_name="parity", client_software_version="1.0")
    exchange.ask_each("a client that names itself", named)
    exchange.ask_each("once more on the same connection", named)
    exchange.ask_each("a client id of null", named, client_id=None)
    for name, version, what in (
        ("", "1.0", "no name"),
        ("parity", "", "no version"),
        ("-parity", "1.0", "a name that begins with a hyphen"),
        ("parity-", "1.0", "a name that ends in a hyphen"),
        ("par ity", "1.0", "a name with a space"),
        ("parité", "1.0", "a name with an accent"),
        ("p", "1", "name and version of one character"),
        ("apache.kafka-java", "4.3.1-rc1", "dots and hyphens within"),
        ("parity", "1_0", "a version with an underscore"),
        ("parity\n", "1.0", "a name with a line feed behind it"),
    ):
        software = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        exchange.ask_each(what, software, since=3)
    for version in (5, 6, 100, 0x7FFF, -1, -0x8000):
        frame = bytearray(exchange.frame(named, 4))
        frame[6:8] = version.to_bytes(2, "big", signed=True)
        exchange.send_bytes(f"version {version}", bytes(frame), api=18, answer=None)
    frame = bytearray(exchange.frame(ApiVersionsRequest(), 0))
    frame[6:8] = (5).to_bytes(2, "big")
    exchange.send_bytes("version 5 behind a header without tagged fields", bytes(frame), api=18)
