"""The packages beside their compiled hot path: what is copied, what is current, what is done without a compiler."""

import subprocess
import sys
from pathlib import Path

import pytest

from compiled import packages
from compiled.packages import NotCompiled, compile_packages, extensions, is_current


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.shutil, "which", lambda _: None)


@pytest.mark.usefixtures("without_compiler")
def test_without_a_compiler_the_broker_is_there_as_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(NotCompiled, match="there is no C compiler"):
        compile_packages(tmp_path)

    assert is_current(tmp_path)
    assert extensions(tmp_path) == []
    said = subprocess.run([sys.executable, "-m", "broker", "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert "--config" in said.stdout


@pytest.mark.usefixtures("without_compiler")
def test_byte_code_is_written_for_starts_that_may_write_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with pytest.raises(NotCompiled):
        compile_packages(tmp_path)

    assert list((tmp_path / "broker" / "server" / "__pycache__").glob("broker_server.*.pyc"))


@pytest.mark.usefixtures("without_compiler")
def test_the_command_says_why_and_fails_only_where_it_was_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from compiled.__main__ import main

    monkeypatch.setattr(sys, "argv", ["compiled", str(tmp_path)])
    assert main() == 0
    assert "not compiled, and slower for it: there is no C compiler" in capsys.readouterr().err

    monkeypatch.setattr(sys, "argv", ["compiled", str(tmp_path), "--required"])
    assert main() == 1


@pytest.mark.usefixtures("without_compiler")
def test_packages_that_have_changed_are_not_current_until_they_are_brought_up_to_date(tmp_path: Path) -> None:
    with pytest.raises(NotCompiled):
        compile_packages(tmp_path)
    unchanged = (tmp_path / "storage/segment.py").stat().st_mtime_ns
    (tmp_path / "storage/log.py").write_text("changed\n")
    (tmp_path / "storage/of_yesterday.py").write_text("gone from the checkout\n")
    (tmp_path / "storage/files.py").unlink()
    assert not is_current(tmp_path)

    with pytest.raises(NotCompiled):
        compile_packages(tmp_path)

    assert is_current(tmp_path)
    assert not (tmp_path / "storage/of_yesterday.py").exists()
    assert (tmp_path / "storage/segment.py").stat().st_mtime_ns == unchanged


@pytest.mark.usefixtures("without_compiler")
def test_what_was_compiled_for_other_sources_does_not_stay(tmp_path: Path) -> None:
    with pytest.raises(NotCompiled):
        compile_packages(tmp_path)
    (tmp_path / "storage/log.cpython-311-x86_64-linux-gnu.so").touch()
    (tmp_path / "build").mkdir()
    (tmp_path / "build/outcome.txt").touch()

    with pytest.raises(NotCompiled):
        compile_packages(tmp_path)

    assert extensions(tmp_path) == []
    assert not (tmp_path / "build/outcome.txt").exists(), "with a compiler it would not be compiled again"


def test_a_compiler_that_fails_is_not_asked_again_before_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "_why_not", lambda: None)
    monkeypatch.setattr(packages, "HOT_PATH", ("storage/no_such_module.py",))
    with pytest.raises(NotCompiled, match="the compiler failed"):
        compile_packages(tmp_path)
    said = (tmp_path / "build/said.txt").stat().st_mtime_ns

    with pytest.raises(NotCompiled, match="the compiler failed"):
        compile_packages(tmp_path)
    assert (tmp_path / "build/said.txt").stat().st_mtime_ns == said
