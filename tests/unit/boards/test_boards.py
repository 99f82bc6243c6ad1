"""The boards' files are those of the declarations, and the compose file puts them where Grafana looks."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from boards.__main__ import DIRECTORY, text_of
from boards.all_boards import BOARDS
from boards.panels import COLUMNS, Board
from config.container import load_container_settings

DOCKER = Path(__file__).parents[3] / "docker"


def read(path: str) -> Any:
    return yaml.safe_load((DOCKER / path).read_text())


SERVICES = read("compose.yaml")["services"]
PROMETHEUS = read("prometheus/prometheus.yml")
(DATA_SOURCE,) = read("grafana/provisioning/datasources/prometheus.yml")["datasources"]
(PROVIDER,) = read("grafana/provisioning/dashboards/ottla.yml")["providers"]


def mounted(service: str) -> dict[str, Path]:
    """The directories of ours that a container sees, by where it sees them."""
    volumes = [volume.split(":") for volume in SERVICES[service]["volumes"]]
    return {inside: DOCKER / ours for ours, inside, *_ in volumes if ours.startswith("./")}


def test_the_files_are_what_the_declarations_say() -> None:
    assert {path.name for path in DIRECTORY.iterdir()} == {f"{board.name}.json" for board in BOARDS}
    for board in BOARDS:
        assert (DIRECTORY / f"{board.name}.json").read_text() == text_of(board), "`make docs` writes them"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_no_panel_lies_upon_another_or_leaves_the_board(board: Board) -> None:
    taken: set[tuple[int, int]] = set()
    panels = board.json()["panels"]

    for panel in panels:
        place = panel["gridPos"]
        fields = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not fields & taken, panel["title"]
        assert max(x for x, _ in fields) < COLUMNS
        taken |= fields
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_every_variable_in_a_query_is_one_that_the_board_has(board: Board) -> None:
    known = {"instance", *(choice.name for choice in board.choices)}

    used = {name for panel in board.panels for query in panel.queries for name in re.findall(r"\$(\w+)", query.expr)}

    assert used - {"__rate_interval"} == known, "what no query uses should not be asked for either"


def test_a_panel_says_what_it_shows_in_words_of_its_own() -> None:
    for board in BOARDS:
        titles = [panel.title for panel in board.panels]
        assert len(set(titles)) == len(titles), board.title
        assert all(panel.about.endswith(".") and panel.about != panel.title for panel in board.panels)


def test_grafana_finds_boards_and_data_source_where_the_compose_file_puts_them() -> None:
    directories = mounted("grafana")

    assert directories[PROVIDER["options"]["path"]].samefile(DIRECTORY)
    assert directories["/etc/grafana/provisioning"].samefile(DOCKER / "grafana" / "provisioning")
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (directories[str(home.parent)] / home.name).is_file()


def test_grafana_asks_the_prometheus_of_the_compose_file() -> None:
    host, port = re.fullmatch(r"http://(\w+):(\d+)", DATA_SOURCE["url"]).groups()  # type: ignore[union-attr]

    assert host in SERVICES
    assert any(published.endswith(f":{port}") for published in SERVICES[host]["ports"])
    assert DATA_SOURCE["type"] == "prometheus"


def test_grafana_knows_how_often_prometheus_asks() -> None:
    assert DATA_SOURCE["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]


def test_prometheus_asks_the_broker_where_it_listens() -> None:
    (job,) = PROMETHEUS["scrape_configs"]
    ((target,),) = [static["targets"] for static in job["static_configs"]]
    host, _, port = target.partition(":")
    metrics = load_container_settings(None, [], {}, mounted_file="/nowhere").settings.ottla_prometheus_listener

    assert host in SERVICES
    assert metrics is not None
    assert int(port) == metrics.port


def test_prometheus_finds_its_rules() -> None:
    directory = mounted("prometheus")["/etc/prometheus"]

    assert (directory / "prometheus.yml").is_file()
    assert all((directory / rules).is_file() for rules in PROMETHEUS["rule_files"])
