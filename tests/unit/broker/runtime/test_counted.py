"""Numbers with their nouns, at their ends."""

import pytest

from broker.runtime.counted import counted


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [(0, "batch", "0 batches"), (1, "batch", "1 batch"), (2, "log", "2 logs"), (10**9, "byte", "1000000000 bytes")],
)
def test_a_number_has_its_noun(number: int, noun: str, words: str) -> None:
    assert counted(number, noun) == words
