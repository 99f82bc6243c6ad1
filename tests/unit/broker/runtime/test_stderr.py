"""stderr that takes nothing: writes neither wait nor fail, and it is said how many lines are missing."""

import io
import logging
import os
import threading
from collections.abc import Iterator

import pytest

from broker.runtime.stderr import StderrWriter

Pipe = tuple[int, int]
NOTICE = b"lines missing here, since stderr could not be written: %d\n"


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def fill(writer: int) -> None:
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, bytes(4096))
    except BlockingIOError:
        os.set_blocking(writer, True)


def empty(reader: int) -> bytes:
    """All that is in the pipe, but for the zeros that filled it."""
    os.set_blocking(reader, False)
    content = b""
    try:
        while piece := os.read(reader, 65_536):
            content += piece
    except BlockingIOError:
        return content.lstrip(b"\0")
    return content


def test_what_is_taken_is_written_as_it_is(pipe: Pipe) -> None:
    stderr = StderrWriter(pipe[1])
    assert stderr.write(b"first\nsec") == 9
    assert stderr.write(b"ond\n") == 4
    assert empty(pipe[0]) == b"first\nsecond\n"


def test_lines_that_a_full_pipe_does_not_take_are_counted(pipe: Pipe) -> None:
    stderr = StderrWriter(pipe[1])
    fill(pipe[1])
    for line in (b"lost\n", b"Traceback\n  File\n", b"lost\n"):
        assert stderr.write(line) == len(line)

    assert empty(pipe[0]) == b""
    stderr.write(b"there\n")
    stderr.write(b"again\n")

    assert empty(pipe[0]) == NOTICE % 4 + b"there\nagain\n"


def test_a_line_of_which_only_the_beginning_was_taken_runs_into_no_other(pipe: Pipe) -> None:
    stderr = StderrWriter(pipe[1])
    long_line = b"x" * 1_000_000 + b"\n"
    stderr.write(long_line)
    beginning = empty(pipe[0])
    assert long_line.startswith(beginning)
    assert 0 < len(beginning) < len(long_line)

    stderr.write(b"there\n")

    assert empty(pipe[0]) == b"\n" + NOTICE % 1 + b"there\n"


def test_a_reader_that_is_slower_than_the_log_gets_every_line(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.runtime.stderr.PATIENCE_S", 60.0)
    stderr = StderrWriter(pipe[1])
    text = b"".join(b"line %d\n" % number for number in range(100_000))
    read: list[bytes] = []

    def read_all() -> None:
        while sum(map(len, read)) < len(text):
            read.append(os.read(pipe[0], 4096))

    reader = threading.Thread(target=read_all)
    reader.start()
    stderr.write(text)
    reader.join()
    assert b"".join(read) == text


def test_a_pipe_without_a_reader_fails_no_write() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stderr = StderrWriter(writer)
    assert stderr.write(b"lost\n") == 5
    os.close(writer)
    assert stderr.write(b"lost\n") == 5


def test_a_logger_writes_each_line_at_once(pipe: Pipe) -> None:
    text = io.TextIOWrapper(StderrWriter(pipe[1]), encoding="utf-8", errors="backslashreplace", write_through=True)  # type: ignore[arg-type]
    handler = logging.StreamHandler(text)
    handler.handle(logging.LogRecord("broker", logging.INFO, "here.py", 1, "bücher \udce9", (), None))
    assert empty(pipe[0]) == "bücher \\udce9\n".encode()
