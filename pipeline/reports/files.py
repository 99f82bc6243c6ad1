"""Report files: checked to be writable before the work begins, and written whole or not at all."""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from pipeline.errors import PipelineError

HTML: Final = ".html"
JSON: Final = ".json"


def check_places(paths: Iterable[str], suffixes: Iterable[str] = (HTML, JSON)) -> None:
    """Raise PipelineError unless a file can be written to each path, and each name ends with one of `suffixes`."""
    known = tuple(suffixes)
    for path in paths:
        if known and not path.endswith(known):
            raise PipelineError(
                f"found the name {path!r} for what is written; expected one that ends with {' or '.join(known)}"
            )
        place = Path(path)
        if place.is_dir():
            raise PipelineError(f"nothing can be written to {path}: it is a directory")
        if place.exists() and not place.is_file():
            # It would be replaced: for root there were no /dev/null any more.
            raise PipelineError(f"nothing can be written to {path}: it is no regular file")
        # The new file is made beside the old one: it is the directory that has to take it.
        try:
            descriptor, temporary = _beside(place)
            os.close(descriptor)
            os.unlink(temporary)
        except OSError as error:
            raise PipelineError(f"nothing can be written to {path}: {error.strerror}") from error


def write_reports(paths: Iterable[str], as_json: Callable[[], dict[str, Any]], as_page: Callable[[], str]) -> None:
    """Write a report to each path, in the format of the path's suffix. Raises PipelineError."""
    for path in paths:
        text = as_page() if path.endswith(HTML) else json.dumps(as_json(), indent=2, ensure_ascii=False) + "\n"
        # A name on disk need not be Unicode, and keys are anything.
        replace_atomically(path, text.encode(errors="backslashreplace"))


def replace_atomically(path: str, content: bytes) -> None:
    """Replace a file's content atomically. Raises PipelineError."""
    with written_atomically(path) as file:
        file.write(content)


@contextmanager
def written_atomically(path: str) -> Iterator[IO[bytes]]:
    """A context with a file to write to. The file gets its name when all of it is on disk; after an error it is
    removed.

    Raises PipelineError.
    """
    place = Path(path)
    temporary: str | None = None
    try:
        descriptor, temporary = _beside(place)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, place)
        temporary = None
    except ConnectionError:
        raise  # where what is written comes from
    except OSError as error:
        raise PipelineError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


def _beside(place: Path) -> tuple[int, str]:
    """Create a new file in the directory of ``place``: its descriptor and its path."""
    return tempfile.mkstemp(prefix=f".{place.name[:40]}.", suffix=".tmp", dir=place.parent)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
