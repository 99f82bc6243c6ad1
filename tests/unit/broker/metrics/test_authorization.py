"""Metrics of the authorizer."""

import pytest

from broker.request.permissions import Operation
from tests.support.acls import AUTHORIZER, acl, creation
from tests.support.batches import produced
from tests.support.broker import InProcessBroker
from tests.support.metrics import now, shown, up
from tests.support.requests import produce_request
from tests.support.sasl_client import LISTENERS, SaslClient

pytestmark = pytest.mark.settings(**AUTHORIZER, **LISTENERS, super_users="User:ANONYMOUS")


def test_the_authorizer_is_measured(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    alice = SaslClient(broker)
    alice.log_in()
    plugin = "kafka_server_plugins"
    labels = '{config="authorizer.class.name",class="StandardAuthorizer",role="broker"}'
    with shown(
        broker,
        {
            f"{plugin}_acls_total_count{labels}": now(1),
            f"{plugin}_authorization_request_rate_per_minute{labels}": up(),
            f"{plugin}_authorization_allowed_rate_per_minute{labels}": up(),
            f"{plugin}_authorization_denied_rate_per_minute{labels}": up(),
            'ottla_authorizer_decisions_total{decision="allowed"}': up(2),
            'ottla_authorizer_decisions_total{decision="denied"}': up(1),
        },
    ):
        alice.ask(produce_request("orders", produced(1)), 9)
        broker.ask(creation(acl("orders", operation=Operation.WRITE)), 3)
        alice.ask(produce_request("orders", produced(1)), 9)
