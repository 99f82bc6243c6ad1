"""Texts become values by Kafka's type, and values become the texts that Kafka prints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidConfig
from config.values import ConfigType, java_double, normalised, parse_value, render_value


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (ConfigType.INT, " 12\t", 12),
        (ConfigType.INT, "+5", 5),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.INT, "-" + "0" * 5_000 + "7", -7),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "1e3", 1000.0),
        (ConfigType.DOUBLE, ".5d", 0.5),
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.LIST, " a ,b,  c", ("a", "b", "c")),
        (ConfigType.LIST, "a,b,a , c,b", ("a", "b", "c")),
        (ConfigType.LIST, "  ", ()),
        (ConfigType.STRING, "  a b\r\n", "a b"),
        (ConfigType.PASSWORD, "x", "x"),
    ],
)
def test_a_text_is_trimmed_and_read_by_its_type(type_: ConfigType, text: str, value: object) -> None:
    assert parse_value("key", type_, "", text) == value


REPLICAS = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


@pytest.mark.parametrize("text", ["0:1,0:1", "0:1,,1:1", "0:1,", ",", "", "*"])
def test_a_list_of_throttled_replicas_stays_as_it_is_as_in_kafka(text: str) -> None:
    assert normalised(ConfigType.LIST, text, REPLICAS) == text
    assert render_value(parse_value("key", ConfigType.LIST, REPLICAS, text)) == text


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "22:22"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "1.0"),
        (ConfigType.INT, ""),
        (ConfigType.INT, "\N{ARABIC-INDIC DIGIT ONE}"),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "9223372036854775808"),
        (ConfigType.LONG, "9" * 5_000),
        (ConfigType.BOOLEAN, "on"),
        (ConfigType.BOOLEAN, "1"),
        (ConfigType.LIST, "a,,b"),
        (ConfigType.LIST, "a,"),
        (ConfigType.LIST, ","),
        (ConfigType.DOUBLE, "half"),
        (ConfigType.DOUBLE, ""),
    ],
)
def test_a_text_of_another_type_is_refused(type_: ConfigType, text: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_value("key", type_, "", text)


@pytest.mark.parametrize(
    ("type_", "allowed", "good", "bad", "expected"),
    [
        (ConfigType.INT, "[1,...]", "1", "0", "a whole number from 1 to 2147483647"),
        (ConfigType.INT, "[1,...,9] or -1", "-1", "0", "a whole number from 1 to 9, or -1"),
        (ConfigType.INT, "[-131072,...,22]", "-131072", "23", "a whole number from -131072 to 22"),
        (ConfigType.DOUBLE, "[0,...,1]", "1", "1.01", "a number from 0 to 1"),
        (ConfigType.STRING, "[gzip, lz4]", "lz4", "LZ4", "one of gzip, lz4"),
        (ConfigType.STRING, "(case insensitive) [UP, DOWN]", "up", "left", "one of UP, DOWN, in any case"),
        (ConfigType.STRING, "non-empty string", "a", " ", "a text that is not empty"),
        (
            ConfigType.LIST,
            "[compact, delete]",
            "delete,compact",
            "drop",
            "a comma-separated list of any of compact, delete",
        ),
        (ConfigType.LIST, "non-empty list", "a", "a,", "a comma-separated list without empty entries"),
        (
            ConfigType.LIST,
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
            "0:1,2:3",
            "0-1",
            "a list of partition:broker pairs such as 0:1,1:1, or *",
        ),
        (
            ConfigType.STRING,
            "[latest, earliest, by_duration:PnDTnHnMn.nS]",
            "by_duration:PT1H",
            "newest",
            "one of latest, earliest, by_duration:PnDTnHnMn.nS",
        ),
    ],
)
def test_what_is_allowed_is_read_from_kafkas_notation(
    type_: ConfigType, allowed: str, good: str, bad: str, expected: str
) -> None:
    parse_value("key", type_, allowed, good)

    with pytest.raises(InvalidConfig) as refused:
        parse_value("some.key", type_, allowed, bad)

    assert str(refused.value) == f"some.key is '{bad}', expected {expected}"


@pytest.mark.parametrize(
    ("type_", "allowed", "bad", "answer"),
    [
        (ConfigType.INT, "", "x", "Invalid value x for configuration some.key: Not a number of type INT"),
        (
            ConfigType.LONG,
            "[1,...]",
            " 1.5 ",
            "Invalid value  1.5  for configuration some.key: Not a number of type LONG",
        ),
        (ConfigType.DOUBLE, "", "", "Invalid value  for configuration some.key: Not a number of type DOUBLE"),
        (
            ConfigType.BOOLEAN,
            "",
            "on",
            "Invalid value on for configuration some.key: Expected value to be either true or false",
        ),
        (ConfigType.INT, "[4,...]", "+3", "Invalid value 3 for configuration some.key: Value must be at least 4"),
        (
            ConfigType.DOUBLE,
            "[0,...,1]",
            "1.50",
            "Invalid value 1.5 for configuration some.key: Value must be no more than 1",
        ),
        (
            ConfigType.INT,
            "[1,...,9] or -1",
            "0",
            "Invalid value 0 for configuration some.key: Value must be between 1 and 9 or equal to -1",
        ),
        (ConfigType.STRING, "[a, b]", " c ", "Invalid value c for configuration some.key: String must be one of: a, b"),
        (
            ConfigType.STRING,
            "(case insensitive) [A, B]",
            "c",
            "Invalid value c for configuration some.key: String must be one of (case insensitive): A, B",
        ),
        (
            ConfigType.STRING,
            "non-empty string",
            " ",
            "Invalid value  for configuration some.key: String must be non-empty",
        ),
        (ConfigType.LIST, "[a, b]", "a,c,d", "Invalid value c for configuration some.key: String must be one of: a, b"),
        (ConfigType.LIST, "[a, b]", "a,", "Configuration 'some.key' values must not be empty."),
        (ConfigType.LIST, "", "x,,y", "Configuration 'some.key' values must not be empty."),
        (
            ConfigType.LIST,
            "[partitionId]:[brokerId],...",
            "0:1,x",
            "Invalid value [0:1, x] for configuration some.key: some.key must be the literal '*' or a list of replicas "
            "in the following format: [partitionId]:[brokerId],...",
        ),
    ],
)
def test_a_client_is_told_in_kafkas_words(type_: ConfigType, allowed: str, bad: str, answer: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_value("some.key", type_, allowed, bad)

    assert refused.value.answer == answer


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (0.5, "0.5"),
        (15.0, "15.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (10000000.0, "1.0E7"),
        (123456.789, "123456.789"),
        (-2.5, "-2.5"),
        (0.0, "0.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
    ],
)
def test_doubles_look_as_java_prints_them(value: float, printed: str) -> None:
    assert java_double(value) == printed


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_double_reads_back_as_the_same(value: float) -> None:
    assert parse_value("key", ConfigType.DOUBLE, "", java_double(value)) == value


def test_values_are_printed_as_kafka_prints_them() -> None:
    assert render_value(True) == "true"
    assert render_value(("compact", "delete")) == "compact,delete"
    assert render_value(7) == "7"
    assert normalised(ConfigType.INT, " 08") == "8"
    assert normalised(ConfigType.LIST, " compact , delete") == "compact,delete"
    assert normalised(ConfigType.BOOLEAN, "TRUE") == "true"
