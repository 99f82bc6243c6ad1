"""The broker that tests and benchmarks run: ours, or Apache Kafka."""

import os
from collections.abc import Mapping
from pathlib import Path

from dev.broker_process import BrokerProcess, port_below_client_ports


def broker_for_tests(
    directory: Path, *, settings: Mapping[str, str] | None = None, port: int | None = None
) -> BrokerProcess:
    """Our broker, or Apache Kafka if `OTTLA_TEST_KAFKA_LIBS` names the directory of its jars."""
    chosen = port_below_client_ports() if port is None else port
    if libraries := os.environ.get("OTTLA_TEST_KAFKA_LIBS"):
        from dev.apache_kafka import ApacheKafka

        return ApacheKafka(directory, settings=settings, port=chosen, libraries=libraries)
    return BrokerProcess(directory, settings=settings, port=chosen)
