"""Every alert says what it is, is tested both ways, and has its line in the operations guide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[3]
GUIDE = (REPOSITORY / "docs/operations.md").read_text()


def read(name: str) -> Any:
    return yaml.safe_load((REPOSITORY / "docker/prometheus" / name).read_text())


RULES = [rule for group in read("alerts.yml")["groups"] for rule in group["rules"]]
TRIED = [tried for test in read("alerts_test.yml")["tests"] for tried in test["alert_rule_test"]]


def anchor_of(heading: str) -> str:
    """How a page's heading is linked to."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_what_is_seen_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    named = [f"$labels.{label}" for label in ("instance", "consumergroup", "group")]
    assert any(name in rule["annotations"]["summary"] for name in named)
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^##+ (.+)$", (REPOSITORY / page).read_text(), re.MULTILINE)
    assert anchor in [anchor_of(heading) for heading in headings]


def test_the_guide_has_a_line_for_each_alert_and_for_no_other() -> None:
    table = re.findall(r"^\| (\w+) \| (critical|warning): ", GUIDE, re.MULTILINE)

    assert table == [(rule["alert"], rule["labels"]["severity"]) for rule in RULES]


def test_every_alert_is_tried_when_it_is_due_and_when_it_is_not() -> None:
    due = {tried["alertname"] for tried in TRIED if tried["exp_alerts"]}
    not_due = {tried["alertname"] for tried in TRIED if not tried["exp_alerts"]}

    assert due == not_due == {rule["alert"] for rule in RULES}


def test_the_links_of_the_guide_lead_somewhere() -> None:
    for page, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", GUIDE):
        text = (REPOSITORY / "docs" / page).read_text() if page else GUIDE
        headings = re.findall(r"^##+ (.+)$", text, re.MULTILINE)
        assert anchor in [anchor_of(heading) for heading in headings], f"{page}#{anchor}"
