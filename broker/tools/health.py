"""`ottla health`: asks the metrics endpoint of the broker with the same settings whether it accepts requests.

A container's health check calls it. The exit code is 0 if the broker accepts requests, and 1 if it does not, not yet,
or can't be asked.
"""

import argparse
import http.client
import sys
from collections.abc import Sequence
from typing import Final

from config.errors import SettingsError
from config.listen_address import METRICS_LISTENER, ListenAddress
from config.listeners import is_every_interface
from config.settings_options import add_settings_options, settings_of

READY: Final = 0
NOT_READY: Final = 1

PATIENCE_S: Final = 4.0
"""Seconds to wait for the answer: a broker whose loop stands still for so long is not healthy."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ottla health`; return the exit code. The text of the broker's answer goes to stdout."""
    parser = argparse.ArgumentParser(
        prog="ottla health", description="Say whether the broker with these settings accepts requests."
    )
    add_settings_options(parser)
    options = parser.parse_args(arguments)
    try:
        listener = settings_of(options).settings.ottla_prometheus_listener
    except SettingsError as error:
        return _not_asked(str(error))
    if listener is None or listener.port == 0:
        return _not_asked(f"{METRICS_LISTENER} names no port where a broker could be asked")
    try:
        status, text = _readiness(listener)
    except (OSError, http.client.HTTPException) as error:
        sys.stdout.write(f"no broker answers on {listener}: {error}\n")
        return NOT_READY
    sys.stdout.write(f"{text}\n")
    return READY if status == http.client.OK else NOT_READY


def _readiness(listener: ListenAddress) -> tuple[int, str]:
    """The status that `/readyz` answers with, and its text. Raises OSError, HTTPException."""
    host = "127.0.0.1" if is_every_interface(listener.host) else listener.host
    connection = http.client.HTTPConnection(host, listener.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status, answer.read(1000).decode(errors="replace").strip()
    finally:
        connection.close()


def _not_asked(reason: str) -> int:
    sys.stderr.write(f"ottla health: {reason}\n")
    return NOT_READY
