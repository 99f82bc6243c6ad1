"""What kafka-python's test fixtures import as `test.service`, which its source distribution leaves out.

Only a broker that somebody else has started is ever asked for, so there is nothing to start, to log or to stop.
"""

from __future__ import annotations


class ExternalService:
    """A broker at an address, which is left alone."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port


class SpawnedService:
    """A broker of the suite's own: there is none here."""

    def __init__(self, *_: object) -> None:
        raise RuntimeError("this run has one broker, and the suite does not start it")
