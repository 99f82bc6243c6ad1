"""Every query of a board and of an alert asks for metrics that the broker exports, by labels that they have."""

from __future__ import annotations

import re

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from tests.support.promql import OF_EVERY_SCRAPE, Mistaken, Reading, labels_in
from tests.unit.boards.asking import ASKING, METRICS, Asking, rules

FETCHES = {"FetchConsumer", "FetchFollower"}
"""Names of requests beside those of the APIs."""


@pytest.mark.parametrize("asking", ASKING, ids=lambda asking: asking.where)
def test_a_query_asks_for_what_is_exported(asking: Asking) -> None:
    reading = Reading(asking.expr, METRICS)

    assert reading.names
    for text in asking.texts:
        assert set(labels_in(text)) <= reading.labels, f"{text!r} names labels that are not in {sorted(reading.labels)}"


@pytest.mark.parametrize("asking", ASKING, ids=lambda asking: asking.where)
def test_a_query_asks_for_values_that_a_label_can_have(asking: Asking) -> None:
    known = {
        "quantile": {"0.50", "0.75", "0.95", "0.98", "0.99", "0.999"},
        "error": {code.name for code in ErrorCode},
        "request": {*("".join(word.title() for word in key.name.split("_")) for key in ApiKey), *FETCHES},
    }

    for asked in Reading(asking.expr, METRICS).asked:
        if asked.label in known:
            assert set(asked.values) <= known[asked.label], f"{asked.metric} never has such a {asked.label}"


def test_the_rules_are_tested_with_series_as_they_are_exported() -> None:
    for test in rules("alerts_test.yml")["tests"]:
        for series in test["input_series"]:
            name, _, labels = series["series"].partition("{")
            given = set(re.findall(r"(\w+)=", labels))
            assert name in METRICS, f"{test['name']}: there is no metric {name}"
            assert given == METRICS[name] | OF_EVERY_SCRAPE, f"{test['name']}: {name} has other labels"


@pytest.mark.parametrize(
    "mistaken",
    [
        "kafka_log_log_sise",
        'up{topic="a"}',
        "sum by (partition) (up)",
        "sum(up",
        "up / on (topic) process_open_fds",
        "sum by (instance) (up) / process_open_fds",
    ],
)
def test_the_test_would_notice(mistaken: str) -> None:
    with pytest.raises(Mistaken):
        Reading(mistaken, METRICS)
