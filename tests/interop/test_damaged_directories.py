"""Of a damaged directory, Ottla saves at least what Apache Kafka saves; `damage_survey.py` prints all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.broker_process import port_below_client_ports
from dev.kafka_jars import libraries
from tests.interop import programs
from tests.interop.conftest import installed
from tests.interop.damage_survey import Survey, copy
from tests.interop.directories import complaints_of_dump_log
from tests.interop.directory_damages import DAMAGES, DANGEROUS, LOG_END, SOUND, PartitionFiles

pytestmark = pytest.mark.timeout(400)  # several starts of a Java broker, on whatever machine

SAVED_LESS = {
    ("killed", "magic.middle"): "a batch of an unknown format is a bad one here; Kafka compares its CRC only",
    ("killed", "magic.active"): "the same",
    ("killed", "log-missing.middle"): "what is left is what was appended first; Kafka keeps what is behind the hole",
    ("killed", "log-empty.middle"): "the same",
}
ALL_READABLE = set(range(LOG_END))
NOTHING_TO_SAVE = {
    "partition-metadata-other-id": "the directory is another topic's",
    "log-is-directory": "a segment has no records",
}


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Survey:
    installed(programs.java)
    prepared = Survey(tmp_path_factory.mktemp("damaged"), port=port_below_client_ports(), libraries=str(libraries()))
    prepared.prepare([*SOUND, *DAMAGES, *DANGEROUS])
    return prepared


@pytest.mark.parametrize("origin", ["killed", "clean"])
def test_ottla_saves_what_kafka_saves(survey: Survey, origin: str) -> None:
    kafka = survey.run("kafka", origin, DAMAGES)
    ottla = survey.run("ottla", origin, DAMAGES)
    assert (kafka.failure, ottla.failure, ottla.refusals) == ("", "", {})
    assert kafka.seen["none"].readable == ottla.seen["none"].readable == ALL_READABLE
    for topic in DAMAGES.keys() - kafka.refusals.keys():
        if (origin, topic) in SAVED_LESS:
            continue
        theirs, ours = kafka.seen[topic], ottla.seen[topic]
        assert theirs.readable <= ours.readable, f"{topic}: Kafka shows {theirs}, Ottla {ours}"
        if theirs.duplicate == "at 237":
            assert ours.duplicate == theirs.duplicate, f"{topic}: Ottla does not know a batch that it has"


def test_ottla_starts_where_kafka_does_not(survey: Survey) -> None:
    damages = {topic: damage for topic, damage in DANGEROUS.items() if topic not in NOTHING_TO_SAVE}
    ottla = survey.run("ottla", "killed", damages)
    assert ottla.failure == ""
    for topic in damages:
        assert ottla.seen[topic].readable == ALL_READABLE, f"{topic}: {ottla.seen[topic]}"


@pytest.mark.parametrize(
    "said",
    [
        {"crc.old": "isvalid: false"},
        {
            "offset-leaps.old": "is followed by",
            "timeindex-wrong.old": "timestamp mismatch",
        },
    ],
    ids=["content", "order"],
)
def test_dump_log_sees_what_is_wrong(survey: Survey, tmp_path: Path, said: dict[str, str]) -> None:
    """So that its silence about our directories says something."""
    for name in ("__cluster_metadata-0", *(f"{topic}-0" for topic in said)):
        copy(survey.directory / "clean" / name, tmp_path / name)
    for topic in said:
        DAMAGES[topic](PartitionFiles(tmp_path / f"{topic}-0"))
    complaints = "\n".join(complaints_of_dump_log(programs.java(), tmp_path))
    assert all(complaint in complaints for complaint in said.values()), complaints
