"""The progress bar on the terminal."""

import io
import sys

import pytest

from broker.tools.progress import Progress


class Terminal(io.StringIO):
    """Takes what is printed, and says that somebody watches."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_that_lines_do_not_run_into(monkeypatch: pytest.MonkeyPatch) -> None:
    tqdm = pytest.importorskip("tqdm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    progress = Progress(4 << 20)
    assert isinstance(progress._bar, tqdm.tqdm)
    progress._bar.delay = 0
    progress._bar.mininterval = 0

    progress.advance(1 << 20)
    progress.print("damage")
    progress.advance(3 << 20)
    progress.close()

    assert sys.stdout.getvalue() == "damage\n"  # type: ignore[attr-defined]
    assert "1.00M/4.00M" in sys.stderr.getvalue()  # type: ignore[attr-defined]


def test_who_reads_a_file_gets_the_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(4 << 20)

    progress.advance(1 << 20)
    progress.print("damage")
    progress.close()

    assert capsys.readouterr() == ("damage\n", "")
