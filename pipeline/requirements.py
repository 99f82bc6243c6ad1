"""Checks for the requirements of the pipeline: libraries, a Java runtime, a version of Spark."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pipeline.errors import PipelineError

SPARK: Final = (4, 2)
OLDEST_JAVA: Final = 17

_LIBRARIES: Final = ("pyspark", "pyarrow", "numpy", "confluent_kafka", "jinja2", "matplotlib")
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_JAVA_TIMEOUT_S: Final = 30
_HOW_TO_GET_JAVA: Final = (
    "install one (on Debian and Ubuntu: apt install openjdk-17-jre-headless), or name it with JAVA_HOME"
)


class Missing(PipelineError):
    """A requirement of the pipeline is not on this machine; the message says how to install it."""


def require_libraries() -> None:
    """Raise Missing unless the libraries of the extra `spark` are installed."""
    if missing := [name.replace("_", "-") for name in _LIBRARIES if find_spec(name) is None]:
        raise Missing(f"it needs {', '.join(missing)}, not installed here: pip install 'ottla[spark]'")


def require_delta() -> None:
    """Raise Missing unless the library of the extra `delta` is installed."""
    try:
        from deltalake.transaction import RemoveAction  # noqa: F401
    except ImportError:
        raise Missing("a Delta table needs deltalake 1.6.6 or newer: pip install 'ottla[spark,delta]'") from None


def require_spark() -> None:
    """Raise Missing unless the supported version of Spark, and a Java that can run it, are installed."""
    from pyspark import __version__ as found

    if tuple(int(number) for number in re.findall(r"\d+", found)[:2]) != SPARK:
        wanted = ".".join(map(str, SPARK))
        raise Missing(f"found Spark {found}, and the pipeline works with {wanted}: pip install 'pyspark=={wanted}.*'")
    require_java()


def require_java() -> None:
    """Raise Missing unless the Java that Spark would start can run Spark."""
    java = _java()
    try:
        done = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, check=False, timeout=_JAVA_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"Spark needs Java, and {java} does not run ({error}): {_HOW_TO_GET_JAVA}") from error
    said = done.stderr + done.stdout
    if done.returncode or (match := _JAVA_VERSION.search(said)) is None:
        first = said.partition("\n")[0]
        raise Missing(f"Spark needs Java, and '{java} -version' says {first!r}: {_HOW_TO_GET_JAVA}")
    if int(match[1]) < OLDEST_JAVA:
        raise Missing(f"Spark needs Java {OLDEST_JAVA} or newer, and {java} is Java {match[1]}: {_HOW_TO_GET_JAVA}")


def _java() -> str:
    if home := os.environ.get("JAVA_HOME"):
        return str(Path(home) / "bin" / "java")
    if (found := shutil.which("java")) is None:
        raise Missing(f"Spark needs Java {OLDEST_JAVA} or newer, and there is none: {_HOW_TO_GET_JAVA}")
    return found
