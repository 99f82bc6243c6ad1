"""The table says medians, spread and whether a target was reached."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import report

ROUNDS = [{"mb_s": 100.0, "ratio": 0.5}, {"mb_s": 300.0, "ratio": 0.4}, {"mb_s": 200.0, "ratio": 0.6}]


def test_every_figure_has_its_median_and_its_spread() -> None:
    figures = report.summary(ROUNDS)

    assert figures["mb_s"] == {"median": 200.0, "least": 100.0, "most": 300.0, "rounds": [100.0, 300.0, 200.0]}


@pytest.mark.parametrize(("ratio", "verdict"), [(0.45, "reached"), (0.449, "MISSED")])
def test_a_target_stands_beside_its_figure(ratio: float, verdict: str) -> None:
    (line,) = [line for line in report.table({"produce-1mb": [{"ratio": ratio}]}).splitlines() if "ratio" in line]

    assert ">= 0.45 of sequential write()" in line
    assert line.endswith(verdict)


def test_a_figure_without_a_target_has_no_verdict() -> None:
    assert "reached" not in report.table({"latency": [{"p50_us": 100.0}]})


def test_the_file_holds_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)

    path = report.write_json({"produce-1mb": ROUNDS}, about={"rounds": 3}, imports=[])

    written = json.loads(path.read_text())
    assert written["cases"]["produce-1mb"]["mb_s"]["rounds"] == [100.0, 300.0, 200.0]
    assert written["about"]["rounds"] == 3
