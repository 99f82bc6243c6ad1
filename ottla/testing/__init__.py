"""Kafka in a test: a broker that starts in milliseconds, is empty for every test, and does what the test says.

    from ottla.testing import Broker

    with Broker() as kafka:
        run_my_program(kafka.bootstrap_servers)
        kafka.wait_for(topic="orders", records=3)

With pytest, the fixtures `kafka` and `kafka_broker` come with the package (`ottla.testing.plugin`, docs/testing.md).
"""

from ottla.testing.broker import Broker, Fault, ForkedBroker, Snapshot
from ottla.testing.errors import BrokerError, NotInTime
from ottla.testing.records import Record

__all__ = ["Broker", "BrokerError", "Fault", "ForkedBroker", "NotInTime", "Record", "Snapshot"]
