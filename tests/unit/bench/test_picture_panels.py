"""What the picture's run finds wrong with a panel."""

from __future__ import annotations

from bench.picture.panels import ZERO_IS_WELL, Line, Shown
from boards.all_boards import BOARDS
from boards.panels import Board, Panel, Query, Row, Unit, lines

WELL = sorted(ZERO_IS_WELL)[0]


def shown(*series: tuple[float, ...], title: str = "Records in") -> Shown:
    panel: Panel = lines(title, "What came in.", Unit.COUNT, Query("records"))
    board = Board(name="one", title="one", rows=[Row("All", [panel])])
    return Shown(board, panel, tuple(Line("a", tuple(enumerate(values))) for values in series))


def test_a_panel_with_values_is_in_order() -> None:
    assert shown((0, 0), (0, 2)).fault is None


def test_a_panel_without_series_or_without_points_has_no_data() -> None:
    assert shown().fault == "no data"
    assert shown((), ()).fault == "no data"


def test_nothing_but_zero_is_no_proof_but_where_zero_is_well() -> None:
    assert shown((0, 0)).fault == "nothing but 0"
    assert shown((0, 0), title=WELL).fault is None
    assert shown(title=WELL).fault == "no data"


def test_panels_where_zero_is_well_are_panels() -> None:

    assert {panel.title for board in BOARDS for panel in board.panels} >= ZERO_IS_WELL
