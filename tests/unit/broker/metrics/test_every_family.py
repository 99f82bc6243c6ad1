"""Every family of metrics is shown by a test, and is declared as its readers need it."""

import re
from pathlib import Path

import pytest

from broker.metrics.documentation import PATH, metrics_page
from broker.metrics.series import Family, Kind
from broker.metrics.subjects import FAMILIES
from tests.support.broker import InProcessBroker
from tests.support.metrics import LOOKED_AT, scrape
from tests.support.requests import fetch_request

OF_OTHERS = ("ottla_", "jvm_", "kafka_broker", "kafka_topic_", "kafka_consumergroup_")
"""Families that no bean of Kafka's stands for begin so: ours, Java's own, kafka_exporter's."""


def test_every_family_has_a_name_of_its_own() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_is_declared_as_its_readers_need_it(family: Family) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)
    assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
    belongs_to_others = family.name.endswith(("_count", "_sum")) or "quantile" in family.labels
    assert (family.kind is Kind.UNKNOWN) == belongs_to_others, "promtool takes it for part of a histogram or a summary"
    assert family.help[0].isupper() or family.help[0].isdigit()
    assert not family.help.endswith(".")
    assert not {"\\", '"', "\n"} & set(family.help), "it is written as it stands"
    assert all(re.fullmatch(r"[a-zA-Z_]+", label) for label in family.labels)
    assert bool(family.bean) != family.name.startswith(OF_OTHERS) or family.name.startswith("kafka_server_raft")


@pytest.mark.sources_only
def test_the_list_for_users_is_up_to_date() -> None:
    assert PATH.read_text(encoding="utf-8") == metrics_page(), "run python -m broker.metrics.documentation"


def test_a_page_has_nothing_that_is_not_declared_and_labels_as_declared(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"one")
    broker.ask(fetch_request("orders"), 12)
    declared = {family.name: family for family in FAMILIES}
    for name, labels in scrape(broker).values:
        if name.startswith(("process_", "python_")):
            continue
        assert name in declared
        found = {label for label, _ in labels}
        assert found == set(declared[name].labels) or not found


@pytest.mark.sources_only
def test_every_family_is_shown_by_a_test(request: pytest.FixtureRequest) -> None:
    here = Path(__file__).parent
    collected = {item.path for item in request.session.items}
    if not {*here.glob("test_*.py"), here.parent / "logs" / "test_retention_hold.py"} <= collected:
        pytest.skip("the tests that show them do not all run")
    not_shown = sorted({family.name for family in FAMILIES} - LOOKED_AT)
    assert not not_shown
