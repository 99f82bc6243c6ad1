"""`ottla cert DIR HOST...`: a private authority, a certificate for a broker and one for a client, and how to use them.

A directory that has an authority keeps it: the certificates are made anew, and clients that trust the authority go on.
"""

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

_AUTHORITY: Final = "authority"
_BROKER: Final = "broker"
_PRIVATE: Final = 0o600
_PUBLIC: Final = 0o644
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HOST: Final = re.compile(r"[A-Za-z0-9:.*_-]{1,253}")
_MISSING: Final = "ottla cert needs pyca/cryptography, which is not here ({}): install ottla[tls]"

_SETTINGS: Final = """\
{made}

The broker (server.properties; beside it anything else that it needs):

    listeners=SSL://:9093
    advertised.listeners=SSL://{host}:9093
    ssl.keystore.type=PEM
    ssl.keystore.location={broker}
    # Clients show a certificate, too. Leave these lines out where they need none:
    ssl.client.auth=required
    ssl.truststore.type=PEM
    ssl.truststore.location={authority}

Clients need {authority_name}, and {client_name} where the broker asks for a certificate.

librdkafka, confluent-kafka:

    bootstrap.servers={host}:9093
    security.protocol=SSL
    ssl.ca.location={authority}
    ssl.certificate.location={client}
    ssl.key.location={client}

Java, and the tools of Apache Kafka (--command-config):

    bootstrap.servers={host}:9093
    security.protocol=SSL
    ssl.truststore.type=PEM
    ssl.truststore.location={authority}
    ssl.keystore.type=PEM
    ssl.keystore.location={client}

kafka-python:

    KafkaProducer(
        bootstrap_servers="{host}:9093",
        security_protocol="SSL",
        ssl_cafile="{authority}",
        ssl_certfile="{client}",
        ssl_keyfile="{client}",
    )
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the files and print the settings; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        from broker.tools.certificate_authority import CertificateAuthority
    except ImportError as error:
        return _failed(_MISSING.format(error))
    now = datetime.now(UTC)
    directory = os.path.abspath(options.directory)
    paths = {name: os.path.join(directory, f"{name}.pem") for name in (_AUTHORITY, _BROKER, options.client)}
    key_path = os.path.join(directory, f"{_AUTHORITY}.key")
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if os.path.exists(key_path):
            made = f"The authority in {directory} has signed new certificates:"
            authority = CertificateAuthority.read(_read(key_path), _read(paths[_AUTHORITY]))
        else:
            made = f"Made in {directory}:\n    {_AUTHORITY}.pem, {_AUTHORITY}.key (signs further certificates: keep it)"
            authority = CertificateAuthority.new(now)
            _write(paths[_AUTHORITY], authority.own.certificate_pem, _PUBLIC)
            _write(key_path, authority.own.key_pem, _PRIVATE)
        broker = authority.sign_broker(options.hosts, now, options.days)
        chain = broker.key_pem + broker.certificate_pem + authority.own.certificate_pem
        _write(paths[_BROKER], chain, _PRIVATE)
        client = authority.sign_client(options.client, now, options.days)
        _write(paths[options.client], client.key_pem + client.certificate_pem, _PRIVATE)
    except (OSError, ValueError) as error:
        return _failed(f"{directory}: {getattr(error, 'strerror', None) or error}")
    until = broker.certificate.not_valid_after_utc.strftime("%Y-%m-%d")
    made += f"\n    {_BROKER}.pem for {', '.join(options.hosts)}, until {until}"
    made += f"\n    {options.client}.pem for the client CN={options.client},O=Ottla, until {until}"
    sys.stdout.write(
        _SETTINGS.format(
            made=made,
            host=f"[{options.hosts[0]}]" if ":" in options.hosts[0] else options.hosts[0],
            broker=paths[_BROKER],
            authority=paths[_AUTHORITY],
            authority_name=f"{_AUTHORITY}.pem",
            client=paths[options.client],
            client_name=f"{options.client}.pem",
        )
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla cert",
        description="Make a private authority, a certificate for a broker and one for a client, and print the settings "
        "of both. Where the directory has an authority, only the certificates are made anew.",
    )
    parser.add_argument("directory", metavar="DIR", help="where the files go; it is made where it does not exist")
    parser.add_argument(
        "hosts", metavar="HOST", nargs="+", type=_host, help="a name or an address by which clients reach the broker"
    )
    parser.add_argument(
        "--client", metavar="NAME", default="client", type=_client, help="the client's name (default: client)"
    )
    parser.add_argument("--days", type=_days, default=365, help="how long the certificates are valid (default: 365)")
    return parser


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither the name of a host nor an address")
    return text


def _client(text: str) -> str:
    if not _NAME.fullmatch(text) or text in (_AUTHORITY, _BROKER):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name of letters, digits, dots, _ and - for a client")
    return text


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 1 to {_MOST_DAYS}")
    return int(text)


_MOST_DAYS: Final = 3650


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, content: bytes, mode: int) -> None:
    """Write a file that is there whole or not at all: a broker may be reading the old one."""
    new = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    os.replace(new, path)


def _failed(sentence: str) -> int:
    sys.stderr.write(f"ottla cert: {sentence}\n")
    return 1
