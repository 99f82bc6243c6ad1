"""The file system that fails on demand, under the threads of a broker."""

import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from tests.support.files import FaultyFileSystem


def test_a_file_that_another_thread_removes_is_not_missed_by_the_notes_of_a_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FaultyFileSystem()
    renamed, removed = str(tmp_path / "renamed"), str(tmp_path / "removed")
    for path in (renamed, removed):
        files.replace_atomically(path, b"saved", fsync=True)
    list_names = os.listdir
    removals: list[Future[None]] = []

    def list_and_remove(path: str) -> list[str]:
        names = list_names(path)
        if not removals:
            removals.append(threads.submit(files.remove, removed))
            wait(removals, timeout=0.1)  # in vain: the rename is not done
        return names

    with ThreadPoolExecutor() as threads, monkeypatch.context() as patched:
        patched.setattr(os, "listdir", list_and_remove)
        files.rename(renamed, renamed + ".deleted")
        (removal,) = removals
        removal.result()

    assert [entry.name for entry in files.list_directory(str(tmp_path))] == ["renamed.deleted"]
