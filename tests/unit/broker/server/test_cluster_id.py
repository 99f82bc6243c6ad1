"""`ottla.cluster.id`: the id of a new directory's cluster, and a check of an existing directory's id."""

from pathlib import Path

import pytest

from broker.server.broker_server import CannotStart
from config.parse import load_settings
from tests.support.broker import InProcessBroker, running_broker

GIVEN = "4L6g3nShT-eMCtK--X86sw"
ANOTHER = "5L6g3nShT-eMCtK--X86sw"


def cluster_id(directory: Path, **settings: object) -> str:
    """What a broker says once it has started on ``directory``."""
    with running_broker(directory, **settings) as broker:
        return broker.server.components.node.cluster_id


def test_a_new_directory_gets_the_id_that_is_given_and_keeps_it(tmp_path: Path) -> None:
    assert cluster_id(tmp_path, ottla_cluster_id=GIVEN) == GIVEN
    assert cluster_id(tmp_path) == GIVEN
    assert cluster_id(tmp_path, ottla_cluster_id=GIVEN) == GIVEN


def test_a_new_directory_beside_an_old_one_belongs_to_the_same_cluster(tmp_path: Path) -> None:
    old = cluster_id(tmp_path / "a")

    assert cluster_id(tmp_path, log_dirs=f"{tmp_path}/a,{tmp_path}/b", ottla_cluster_id=old) == old


def test_a_directory_of_another_cluster_is_refused_as_kafkas_formatting_tool_does(tmp_path: Path) -> None:
    cluster_id(tmp_path, ottla_cluster_id=GIVEN)

    with pytest.raises(CannotStart, match=rf"{tmp_path} belongs to cluster {GIVEN}, and ottla.cluster.id is {ANOTHER}"):
        InProcessBroker(tmp_path, ottla_cluster_id=ANOTHER)

    assert cluster_id(tmp_path) == GIVEN


@pytest.mark.parametrize("text", [f"{GIVEN}==", "my cluster", "a\\b", "id\nnode.id=7", "\N{SNOWMAN}"])
def test_any_text_is_kept_as_it_was_given(tmp_path: Path, text: str) -> None:
    loaded = load_settings(None, [("ottla.cluster.id", text)])

    assert cluster_id(tmp_path, ottla_cluster_id=loaded.settings.ottla_cluster_id) == text
    assert cluster_id(tmp_path, ottla_cluster_id=loaded.settings.ottla_cluster_id) == text


def test_an_empty_id_is_none() -> None:
    assert load_settings(None, [("ottla.cluster.id", "")]).settings.ottla_cluster_id is None
