"""Who somebody is by a mapping rule, a JAAS line or a certificate's subject: what Apache Kafka and Java read, we read.

The answers are the recorded ones of Kafka 4.4.0 and Java 17; where `OTTLA_TEST_KAFKA_LIBS` names the directory with
Kafka's jars, thousands of new questions are asked as well.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable

import pytest

from config.principal_rules import InvalidRules, parse_rules
from tests.parity.texts import REFUSED, Question, kafkas_answers, our_answer, questions, recorded

NEW_QUESTIONS = 1000
REFUSED_HERE_ONLY = (
    "there is no rule",
    "and there is no such group",
    "which stands for no group",
    "a reference to group",
    "in a look-behind is not supported there",
    "a look-behind has too many lengths",
)
"""What stops a start here and not that of Kafka, which finds out when a client comes, or can do more."""


def is_right(question: Question, kafkas: str) -> bool:
    ours = our_answer(question)
    if ours == kafkas or question.kind != "rules" or ours != REFUSED:
        return ours == kafkas
    with pytest.raises(InvalidRules, match="|".join(map(re.escape, REFUSED_HERE_ONLY))):
        parse_rules(question.texts[0])
    return True


def wrong(asked: Iterable[tuple[Question, str]]) -> list[tuple[Question, str, str]]:
    return [(question, kafkas, our_answer(question)) for question, kafkas in asked if not is_right(question, kafkas)]


def test_what_kafka_reads_in_the_recorded_texts_we_read() -> None:
    asked = recorded()

    assert not wrong(asked)
    assert {question.kind for question, answer in asked if answer.startswith("[")} == {"rules", "jaas", "subject"}
    named = [question for question, answer in asked if question.kind == "rules" and answer.startswith("[")]
    assert sum(our_answer(question) != REFUSED for question in named) > len(named) // 2


def test_what_kafka_reads_in_new_texts_we_read() -> None:
    libraries = os.environ.get("OTTLA_TEST_KAFKA_LIBS")
    if libraries is None:
        pytest.skip("OTTLA_TEST_KAFKA_LIBS names no directory with Kafka's jars")
    seed = random.randrange(1 << 32)
    asked = list(questions(random.Random(seed), NEW_QUESTIONS))

    assert not wrong(zip(asked, kafkas_answers(asked, libraries), strict=True)), f"the seed is {seed}"
