"""`make pipeline-setup`: installs what the pipeline and its tests need beside Python packages, where it can.

A Java runtime is a package of the whole system: it is installed where this runs as root on Debian or Ubuntu, and only
after the user has said yes, or in CI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from dev import spark_connector, spark_delta
from dev.maven import NoJars
from pipeline.requirements import Missing, require_java, require_spark

JAVA_PACKAGE = "openjdk-17-jre-headless"
ANY_JAVA_PACKAGE = "default-jre-headless"
"""The Java package of newer distributions: newer than 17."""


def main() -> int:
    """Install what is missing and print what is still missing then. Returns the exit code: 1 without Java."""
    code = 0
    try:
        require_java()
    except Missing:
        _bring_java()
    try:
        require_spark()
        _say("Spark and Java are here.")
    except Missing as missing:
        _say(f"Not here: {missing}.")
        code = 1
    for what, jars in (
        ("Spark's Kafka connector (kafka_log needs none of it)", spark_connector.jars),
        ("Delta Lake for Spark (the archive needs none of it)", spark_delta.jars),
    ):
        try:
            _say(f"{what} is in {jars()[0].parent}.")
        except NoJars as reason:
            _say(f"{what} is not here, and its tests will be skipped: {reason}.")
    return code


def _bring_java() -> None:
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return
    if not os.environ.get("CI") and not _says_yes(f"Install {JAVA_PACKAGE} with apt-get?"):
        return
    subprocess.run(["apt-get", "update", "--quiet"], check=False, stdout=sys.stderr)
    for package in (JAVA_PACKAGE, ANY_JAVA_PACKAGE):
        command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", package]
        if subprocess.run(command, check=False, stdout=sys.stderr).returncode == 0:
            return


def _says_yes(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    raise SystemExit(main())
