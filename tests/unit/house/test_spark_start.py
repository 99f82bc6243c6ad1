"""How tests start Spark: with what was asked for anyway, and with nothing else where there is no Spark."""

from collections.abc import Sequence

import pytest

from dev import spark_start
from pipeline.requirements import Missing

pytestmark = pytest.mark.sources_only


@pytest.fixture(autouse=True)
def _archived(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java, and an archive that has been made."""

    def with_archive(program: str, jars: str, run: object) -> Sequence[str]:
        return (f"-XX:SharedArchiveFile={program} on {jars}",)

    monkeypatch.setattr(spark_start, "require_java", lambda: "java")
    monkeypatch.setattr(spark_start, "with_archive", with_archive)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=b")


class Installed:
    origin = "/somewhere/pyspark/__init__.py"


def test_spark_starts_with_its_archive_and_with_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_start, "find_spec", lambda name: Installed)

    asked, *ours = spark_start.options()

    assert asked == "-Da=b"
    assert "-XX:SharedArchiveFile=spark on /somewhere/pyspark/jars" in ours


def test_where_there_is_no_spark_only_what_was_asked_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_start, "find_spec", lambda name: None)

    assert spark_start.options() == ["-Da=b"]


def test_where_there_is_no_java_only_what_was_asked_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def require_java() -> None:
        raise Missing("there is no Java")

    monkeypatch.setattr(spark_start, "require_java", require_java)

    assert spark_start.options() == ["-Da=b"]
