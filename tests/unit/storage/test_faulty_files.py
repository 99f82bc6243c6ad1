"""The file system that fails on demand, under the threads of a broker."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.files import FaultyFileSystem


def test_no_thread_misses_what_another_has_just_renamed_or_removed(tmp_path: Path) -> None:
    files = FaultyFileSystem()

    def work(thread: str) -> int:
        for number in range(200):
            path = str(tmp_path / f"{thread}-{number}")
            files.replace_atomically(path, b"saved", fsync=False)
            files.rename(path, path + ".deleted")
            files.remove(path + ".deleted")
        return number

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(work, "abc")) == [199] * 3

    assert files.list_directory(str(tmp_path)) == []
