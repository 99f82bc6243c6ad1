"""ChildProcess: orders, answers, and its end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.runtime.child_process import ChildEnded, ChildProcess
from dev.repository import REPOSITORY
from dev.waiting import until

CHILD = "tests.support.children"


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    child = ChildProcess(CHILD)
    yield child
    child.kill()
    child.wait()


def test_every_order_gets_its_own_answers(child: ChildProcess) -> None:
    assert list(child.ask({"say": ["one", "two\nthree"]})) == [{"said": "one"}, {"said": "two\nthree"}]
    assert list(child.ask({})) == []
    assert list(child.ask({"say": ["four"]})) == [{"said": "four"}]


def test_a_child_that_ends_in_the_middle_is_noticed(child: ChildProcess) -> None:
    answers = child.ask({"say": ["one"], "die": True})
    assert next(answers) == {"said": "one"}
    with pytest.raises(ChildEnded, match=r"ended with exit code -9"):
        next(answers)
    with pytest.raises(ChildEnded):
        next(child.ask({"say": ["two"]}))


def test_a_child_that_cannot_start_is_noticed(capfd: pytest.CaptureFixture[str]) -> None:
    child = ChildProcess("tests.support.nobody")
    with pytest.raises(ChildEnded, match="ended with exit code 1"):
        next(child.ask({"say": ["one"]}))
    child.wait()
    assert "No module named tests.support.nobody" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_for_all_processes_of_a_terminal_is_the_brokers_affair(child: ChildProcess, name: str) -> None:
    assert list(child.ask({"say": ["one"]})) == [{"said": "one"}]
    os.kill(child.pid, getattr(signal, name))
    assert list(child.ask({"say": ["two"]})) == [{"said": "two"}]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child finds out with its next answer")
def test_a_child_dies_with_a_broker_that_is_killed() -> None:
    program = (
        "from broker.runtime.child_process import ChildProcess\n"
        f"child = ChildProcess({CHILD!r})\n"
        "answers = child.ask({'say': ['one'], 'stay': True})\n"
        "next(answers)\n"
        "print(child.pid, flush=True)\n"
        "next(answers)\n"
    )
    broker = subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY, stdout=subprocess.PIPE)
    with broker:
        assert broker.stdout is not None
        child_id = int(broker.stdout.readline())
        assert is_alive(child_id)
        broker.kill()
    until(lambda: not is_alive(child_id), "the end of the child")


def is_alive(process_id: int) -> bool:
    """Whether there is such a process, other than one that nobody has waited for."""
    try:
        with open(f"/proc/{process_id}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_package_of_somebody_else_in_the_working_directory_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/__init__.py").write_text("raise ImportError('not ours')\n")
    monkeypatch.chdir(tmp_path)
    child = ChildProcess(CHILD)
    try:
        assert list(child.ask({"say": ["one"]})) == [{"said": "one"}]
    finally:
        child.kill()
        child.wait()
