"""LinearRegex: patterns in RE2's syntax, as Kafka understands them, in linear time and bounded memory."""

import re

import pytest

from broker.runtime.linear_regex import MOST_PATTERN_CHARACTERS, InvalidPattern, LinearRegex


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("shop", ["shop"], ["shop-1", "my-shop", "SHOP", ""]),
        ("shop|orders", ["shop", "orders"], ["shoporders"]),
        ("^shop$", ["shop"], ["shop\n"]),
        ("(?i)GRÖSSE", ["grösse"], ["größe"]),
        ("sh.p", ["shop", "shöp", "sh😀p"], ["sh\np", "shp"]),
        ("(?s)sh.p", ["sh\np"], []),
        (r"\Qa.b\E", ["a.b"], ["axb"]),
        ("(?<name>shop)-(?P<number>[0-9]+)", ["shop-1"], ["shop-"]),
        (r"\p{Greek}+", ["κόσμος"], ["cosmos"]),
        (r"[\w.-]{1,249}", ["a", "a.b-c"], ["", "a b", "x" * 250]),
        ("", [""], ["a"]),
    ],
)
def test_a_pattern_matches_whole_texts(pattern: str, matching: list[str], others: list[str]) -> None:
    regex = LinearRegex(pattern)
    assert [text for text in (*matching, *others) if regex.matches(text)] == matching


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(shop", r"missing \)"),
        ("shop)", r"unexpected \)"),
        ("*", "no argument for repetition operator"),
        ("[z-a]", "invalid character class range"),
        ("a{2,1}", "invalid repetition size"),
        ("\\", "trailing"),
        ("(?=shop)", "invalid perl operator"),
        ("(?<=shop)", "invalid perl operator|invalid named capture group"),
        (r"(shop)\1", "invalid escape sequence"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        (r"\pL{1000}", "pattern too large"),
        ("a" * (MOST_PATTERN_CHARACTERS + 1), "a pattern of 4097 characters; at most 4096"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_reason(
    capfd: pytest.CaptureFixture[str], pattern: str, why: str
) -> None:
    with pytest.raises(InvalidPattern) as raised:
        LinearRegex(pattern)
    assert re.match(why, str(raised.value))
    assert "Error parsing" not in capfd.readouterr().err, "RE2 writes nothing by itself"


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a*)*b", "(?:a?){500}a{500}b", "(.*a){10}b"])
def test_patterns_that_could_be_tried_in_many_ways_come_to_an_end(pattern: str) -> None:
    """With back-tracking, each of these would take longer than there is time."""
    assert not LinearRegex(pattern).matches("a" * 30_000 + "!")
