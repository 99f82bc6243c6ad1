"""Apache Kafka and we are asked the same, and answer the same but for what the table of allowed differences names.

Kafka's answers are the recorded ones of 4.4.0, or those of a node that runs now where `OTTLA_TEST_KAFKA_LIBS` names the
directory with its jars.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from tests.parity.allowed_differences import ALLOWED, Allowed
from tests.parity.brokers import SCRIPTS, Run, ask_kafka, ask_ours
from tests.parity.comparison import ABSENT, Difference, differing_fields, matches
from tests.parity.exchange import Answered
from tests.parity.recording import read
from tests.parity.rules import RULES, Rule

ours = cache(ask_ours)


@cache
def kafkas(script: str) -> Run:
    libraries = os.environ.get("OTTLA_TEST_KAFKA_LIBS")
    return ask_kafka(script, libraries) if libraries else Run(read(script), Counter())


def by_step(answered: list[Answered]) -> dict[tuple[str, str, str], object]:
    return {(answer.api, answer.step, answer.version): answer.outcome for answer in answered}


def differences(script: str) -> Iterator[Difference]:
    """Every field that differs, allowed or not."""
    theirs, mine = by_step(kafkas(script).answered), by_step(ours(script).answered)
    for api, step, version in [*theirs, *(key for key in mine if key not in theirs)]:
        key = (api, step, version)
        for path, kafka, our in differing_fields(theirs.get(key, ABSENT), mine.get(key, ABSENT)):
            yield Difference(api=api, step=step, version=version, path=path, kafka=kafka, ours=our)


def allowance(difference: Difference) -> Allowed | None:
    """The entry of the table that allows it."""
    for allowed in ALLOWED:
        if (
            matches(difference.api, allowed.api)
            and matches(difference.step, allowed.step)
            and matches(difference.path, allowed.path)
            and allowed.when(difference.kafka, difference.ours)
        ):
            return allowed
    return None


@pytest.mark.parametrize("script", SCRIPTS)
def test_we_answer_as_kafka_does(script: str) -> None:
    found: dict[str, list[str]] = {}
    for difference in differences(script):
        if allowance(difference) is None:
            found.setdefault(str(difference), []).append(difference.version)
    lines = [f"{what} [{' '.join(versions)}]" for what, versions in found.items()]
    assert not found, f"{len(lines)} fields differ:\n" + "\n".join(lines)


def test_every_rule_and_every_allowed_difference_is_needed() -> None:
    rules: Counter[Rule] = Counter()
    used: set[Allowed] = set()
    for script in SCRIPTS:
        rules += ours(script).rules_used
        used.update(found for difference in differences(script) if (found := allowance(difference)))
    # What is open is named in the table, and a rule may wait for it.
    waiting = {allowed.api for allowed in ALLOWED if allowed.reason.startswith("Open: ")}
    idle = [f"rule {rule.api} {rule.path}" for rule in RULES if not rules[rule] and rule.api not in waiting]
    idle += [
        f"allowed difference {allowed.api} {allowed.step} {allowed.path}"
        for allowed in ALLOWED
        if allowed not in used and not allowed.by_chance
    ]
    assert not idle, f"the table has entries that nothing needs: {idle}"


def test_every_api_and_version_that_we_advertise_is_asked_and_answered() -> None:
    answers = {
        (answer.api, answer.version)
        for script in SCRIPTS
        for answer in ours(script).answered
        if isinstance(answer.outcome, dict)
    }
    advertised = next(answer for answer in ours("api_versions").answered if answer.version == "v0").outcome["api_keys"]
    missing = [
        f"{api} v{version}"
        for api, versions in advertised.items()
        for version in range(int(versions.partition("-")[0]), int(versions.partition("-")[2]) + 1)
        if (api, f"v{version}") not in answers
    ]
    assert missing == [f"PRODUCE v{version}" for version in range(3)], "served, and not asked by any script"
