"""A broker process with a listener for each way of TLS: with a certificate of the broker, of both, and with SASL."""

from __future__ import annotations

from pathlib import Path

from dev.broker_process import BrokerProcess, port_below_client_ports
from tests.support.certificates import Authority, written
from tests.support.clients import Tls

WAYS = ("SSL", "SASL_SSL", "MUTUAL")
KEYSTORE = "listener.name.ssl.ssl.keystore.location"


class TlsBroker(BrokerProcess):
    """A broker whose listener for administrators is plain, and has a listener for each of `WAYS`."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.authority = Authority()
        self.directory = directory
        self.ports: dict[str, int] = {}
        port = port_below_client_ports()
        for way in WAYS:
            self.ports[way] = port_below_client_ports(above=max(port, *self.ports.values(), 0))
        self.trusted = written(directory / "authority.pem", self.authority.pem)
        super().__init__(
            directory,
            port=port,
            settings={
                "listeners": ",".join(
                    f"{name}://127.0.0.1:{number}" for name, number in {"PLAINTEXT": port, **self.ports}.items()
                ),
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,MUTUAL:SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": written(directory / "broker.pem", self.authority.issue().pem()),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.trusted,
                "listener.name.mutual.ssl.client.auth": "required",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                    'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder";'
                ),
                **settings,
            },
        )

    def bootstrap_of(self, way: str) -> str:
        return f"127.0.0.1:{self.ports[way]}"

    def client(self, name: str | None = None) -> Tls:
        """What a client needs; with a ``name``, a certificate of its own, too."""
        if name is None:
            return Tls(self.trusted)
        issued = self.authority.issue(name)
        return Tls(
            self.trusted,
            written(self.directory / f"{name}.pem", issued.certificate_pem),
            written(self.directory / f"{name}.key", issued.key_pem()),
        )
