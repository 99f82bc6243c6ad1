"""What is written into the log is one line an event."""

import logging

from broker.server.command_line import OneLine


def written(message: str, *arguments: object, **more: object) -> str:
    record = logging.LogRecord("broker", logging.INFO, "here.py", 1, message, arguments, more.get("exc_info"))  # type: ignore[arg-type]
    return OneLine("%(levelname)s %(message)s").format(record)


def test_a_name_that_a_client_thinks_up_begins_no_other_line() -> None:
    name = "a\nINFO broker: all is well\x1b[2J\0\u2028"
    assert written("no topic %s", name) == "INFO no topic a\\nINFO broker: all is well\\x1b[2J\\x00\\u2028"


def test_letters_of_every_language_are_written_as_they_are() -> None:
    assert written("no topic %s", "bücher 本") == "INFO no topic bücher 本"


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("one\ntwo")
    except ValueError as error:
        text = written("unexpected: %s", error, exc_info=(type(error), error, error.__traceback__))
    assert text.splitlines()[0] == "INFO unexpected: one\\ntwo"
    assert "Traceback" in text.splitlines()[1]
