"""Two brokers side by side: the order of their samples, going on after an interruption, and what the ratios say."""

from __future__ import annotations

import fnmatch
import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from bench.__main__ import CASES, OF_OUR_PROCESS
from bench.processes import Disturbance, StartedBroker, cpu_seconds, machine_cpu_seconds
from bench.side_by_side import features, headlines, landings, order, page
from bench.side_by_side.__main__ import PAGE, README
from bench.side_by_side.catalogue import WORKLOADS, Table, measurable, tables
from bench.side_by_side.journal import Journal, Sample
from bench.side_by_side.order import Step
from bench.side_by_side.sampling import Arena
from bench.side_by_side.standing import Spread, Standing, reaches, standings
from bench.side_by_side.targets import TARGETS, target
from bench.side_by_side.workload import CPU_S_GB, MB_S, Figures, Workload
from dev import waiting
from protocol.api_keys import ApiKey

SYSTEM = Table("system", "Defaults", "bbr", is_whole=True)
CUBIC = Table("cubic", "Defaults, under cubic", "cubic")
EQUAL = Table("equal", "Equal", "cubic", {"socket.send.buffer.bytes": "-1"}, has_targets=False)
LARGE = Workload(
    name="raw-16kb", words="16 KB", rows=(MB_S, CPU_S_GB), seconds=2.0, is_of_sockets=True, measure=lambda _: {}
)
SMALL = Workload(name="latency", words="1,000 records/s", rows=(MB_S,), seconds=5.0, measure=lambda _: {})
BOTH = ("ottla", "kafka")
IDENTITY = {"ours": "abc", "against": "4.3.1", "scale": 1.0}


def sample(contender: str, number: int, mb_s: float, *, workload: str = "raw-16kb", cpu: float = 1.0) -> Sample:
    return Sample(
        table="system",
        workload=workload,
        round=number,
        contender=contender,
        figures={"mb_s": mb_s, "cpu_s_gb": cpu},
        others_cores=0.1,
        attempts=1,
        seconds=2.5,
    )


def standing(pairs: list[tuple[float, float]], *, cpu: tuple[float, float] = (1.0, 1.0)) -> dict[str, Standing]:
    samples = [
        sample(contender, number, mb_s, cpu=seconds)
        for number, pair in enumerate(pairs)
        for contender, mb_s, seconds in zip(BOTH, pair, cpu, strict=True)
    ]
    return {one.row.figure: one for one in standings(samples, [SYSTEM], [LARGE], BOTH)}


# The order ------------------------------------------------------------------------------------------------------------


def test_every_second_round_runs_backwards_in_it_the_brokers_too() -> None:
    taken = [
        (step.round, step.workload.name, step.contender) for step in order.steps([SYSTEM], [LARGE, SMALL], BOTH, 2)
    ]

    assert taken == [
        (1, "raw-16kb", "ottla"),
        (1, "raw-16kb", "kafka"),
        (1, "latency", "ottla"),
        (1, "latency", "kafka"),
        (2, "latency", "kafka"),
        (2, "latency", "ottla"),
        (2, "raw-16kb", "kafka"),
        (2, "raw-16kb", "ottla"),
    ]


def test_what_sockets_do_not_decide_is_measured_under_the_systems_own_control_only() -> None:
    assert {step.workload.name for step in order.steps([CUBIC], [LARGE, SMALL], BOTH, 1)} == {"raw-16kb"}


def test_a_run_takes_its_samples_and_the_warming_up_of_both_brokers_for_each_set_of_settings(tmp_path: Path) -> None:
    steps = order.missing(order.steps([SYSTEM, CUBIC, EQUAL], [LARGE], BOTH, 5), Journal(tmp_path / "j", IDENTITY))

    # Under cubic the same brokers go on; equal settings take new ones.
    assert order.expected_s(steps, 1.0, 2) == pytest.approx(2 * 2 * (3 + 45) + 3 * 5 * 2 * (2.0 + LARGE.around_s))


def test_at_a_small_scale_only_what_is_around_the_samples_remains(tmp_path: Path) -> None:
    steps = order.missing(order.steps([SYSTEM], [LARGE], BOTH, 1), Journal(tmp_path / "j", IDENTITY))

    assert order.expected_s(steps, 1e-9, 2) == pytest.approx(2 * 3 + 2 * LARGE.around_s)


def test_a_whole_run_takes_an_hour_and_forty_minutes_at_most(tmp_path: Path) -> None:
    everything = list(WORKLOADS.values())
    found = tables("bbr", ["reno", "bbr", "cubic"], can_change=True)
    steps = order.missing(order.steps(found, everything, BOTH, 5), Journal(tmp_path / "j", IDENTITY))

    assert 40 < order.expected_s(steps, 1.0, 2) / 60 < 100


# Which tables ---------------------------------------------------------------------------------------------------------


def test_who_may_change_the_systems_control_measures_under_cubic_too() -> None:
    found = tables("bbr", ["reno", "bbr", "cubic"], can_change=True)

    assert [(table.key, table.congestion) for table in found] == [
        ("system", "bbr"),
        ("cubic", "cubic"),
        ("equal", "cubic"),
    ]


def test_where_cubic_is_the_systems_own_bbr_has_the_second_table_if_it_is_there() -> None:
    assert [table.key for table in tables("cubic", ["reno", "cubic", "bbr"], can_change=True)][1] == "bbr"
    assert [table.key for table in tables("cubic", ["reno", "cubic"], can_change=True)] == ["system", "equal"]


def test_the_table_of_equal_settings_explains_and_has_nothing_to_reach() -> None:
    *reaching, equal = tables("bbr", ["reno", "bbr", "cubic"], can_change=True)

    assert equal.settings["socket.send.buffer.bytes"] == "-1"
    assert not equal.has_targets
    assert all(table.has_targets and not table.settings for table in reaching)


def test_who_may_not_change_it_measures_under_the_systems_own_only() -> None:
    assert {table.congestion for table in tables("bbr", ["reno", "bbr", "cubic"], can_change=False)} == {"bbr"}


# Going on -------------------------------------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on_behind_its_last_whole_sample(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    before = Journal(path, IDENTITY)
    before.add(sample("ottla", 1, 100.0))
    before.add(sample("kafka", 1, 50.0))
    with path.open("a") as file:
        file.write('{"table": "system", "workload": "latency", "rou')  # the power went

    after = Journal(path, IDENTITY)

    assert after.samples == before.samples
    left = order.missing(order.steps([SYSTEM], [LARGE, SMALL], BOTH, 1), after)
    assert [(step.workload.name, step.contender) for step in left] == [("latency", "ottla"), ("latency", "kafka")]


def test_what_is_added_after_an_interruption_is_read_back_too(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Journal(path, IDENTITY).add(sample("ottla", 1, 100.0))
    with path.open("a") as file:
        file.write('{"table": ')

    Journal(path, IDENTITY).add(sample("kafka", 1, 50.0))

    assert {found.contender for found in Journal(path, IDENTITY).samples.values()} == {"ottla", "kafka"}


def test_samples_of_another_commit_or_scale_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Journal(path, IDENTITY).add(sample("ottla", 1, 100.0))

    assert not Journal(path, {**IDENTITY, "ours": "def"}).samples
    assert len(path.read_text().splitlines()) == 1


def test_more_rounds_add_to_those_that_are_there(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", IDENTITY)
    for number in (1, 2):
        for contender in BOTH:
            journal.add(sample(contender, number, 100.0))

    left = order.missing(order.steps([SYSTEM], [LARGE], BOTH, 3), journal)

    assert {step.round for step in left} == {3}


# The ratios -----------------------------------------------------------------------------------------------------------


def test_a_ratio_is_made_within_its_round() -> None:
    # The machine was slow in the second round, for both.
    found = standing([(200.0, 100.0), (60.0, 20.0), (240.0, 100.0)])["mb_s"]

    assert found.ratio == Spread(2.4, 2.0, 3.0)
    assert found.ours == Spread(200.0, 60.0, 240.0)
    assert found.theirs.median == 100.0


def test_of_what_costs_less_is_better() -> None:
    found = standing([(1.0, 1.0)], cpu=(0.25, 1.0))["cpu_s_gb"]

    assert found.ratio.median == 4.0
    assert not found.is_behind


def test_a_round_that_only_one_of_them_has_does_not_count() -> None:
    samples = [sample("ottla", 1, 200.0), sample("kafka", 1, 100.0), sample("ottla", 2, 900.0)]

    (found,) = [one for one in standings(samples, [SYSTEM], [LARGE], BOTH) if one.row is MB_S]

    assert (found.rounds, found.ratio.most) == (1, 2.0)


@pytest.mark.parametrize(
    ("median", "least", "is_reached"), [(1.4, 1.26, True), (1.39, 1.39, False), (1.6, 1.25, False)]
)
def test_a_row_is_reached_where_the_median_is_and_the_lowest_pair_is_near(
    median: float, least: float, is_reached: bool
) -> None:
    assert reaches(Spread(median, least, 2.0), 1.4) is is_reached


@pytest.mark.parametrize(
    ("others_cores", "is_of_moments", "disturbed"), [(0.1, False, 0), (0.1, True, 2), (0.3, False, 2)]
)
def test_disturbed_samples_are_counted(others_cores: float, is_of_moments: bool, disturbed: int) -> None:
    workload = replace(LARGE, is_of_moments=is_of_moments)
    samples = [replace(sample(contender, 1, 2.0), others_cores=others_cores) for contender in BOTH]

    (found, _) = standings(samples, [SYSTEM], [workload], BOTH)

    assert found.disturbed == disturbed


# Who works while one is measured --------------------------------------------------------------------------------------


class Idler(StartedBroker):
    """Any process that was started."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        super().__init__("127.0.0.1:1", self.process.pid, data_directory=directory, created_s=0.0)

    @property
    def is_stopped(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def close(self) -> None:
        self.process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="what processes do is read from /proc")
@pytest.mark.parametrize(("measured", "stopped"), [("ottla", {"kafka"}), ("a newborn", {"ottla", "kafka"})])
def test_whoever_is_not_measured_is_held_meanwhile(tmp_path: Path, measured: str, stopped: set[str]) -> None:
    brokers = {key: Idler(tmp_path) for key in BOTH}
    seen: list[set[str]] = []

    def look(_: object) -> Figures:
        waiting.until(lambda: stopped == {key for key, broker in brokers.items() if broker.is_stopped})
        seen.append({key for key, broker in brokers.items() if broker.is_stopped})
        return {"mb_s": 1.0}

    contenders = [Mock(key=key, start=Mock(return_value=broker)) for key, broker in brokers.items()]
    workload = replace(LARGE, measure=look) if measured in brokers else replace(LARGE, measure=None, live=look)
    with Arena(contenders, {}, tmp_path, scale=1.0, libraries=None) as arena:
        for key in BOTH:
            arena.bench(key)
        arena.sample(Step(table=SYSTEM, workload=workload, round=1, contender="ottla"))
        waiting.until(lambda: not any(broker.is_stopped for broker in brokers.values()))

    assert seen
    assert all(held == stopped for held in seen)  # it is measured again where others disturb it: other tests, perhaps


# What makes a sample worth repeating ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others_cores", "is_of_moments", "attempts", "kept"),
    [
        ([0.3, 0.2], False, 2, 1),
        ([0.3, 0.28, 0.29], False, 3, 1),
        ([0.2, 0.02, 0.004], True, 3, 2),
        ([0.2, 0.02, 0.1, 0.2, 0.1], True, 5, 1),
    ],
)
def test_a_sample_is_taken_again_until_it_is_quiet_and_else_the_quietest_counts(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    others_cores: list[float],
    is_of_moments: bool,
    attempts: int,
    kept: int,
) -> None:
    seen = iter(others_cores)
    monkeypatch.setattr("bench.side_by_side.sampling.Disturbance", lambda: Mock(processors=lambda: next(seen)))
    taken = itertools.count()
    workload = replace(LARGE, measure=None, live=lambda _: {"mb_s": next(taken)}, is_of_moments=is_of_moments)
    arena = Arena([Mock(key="ottla")], {}, tmp_path, scale=1.0, libraries=None)

    found = arena.sample(Step(table=SYSTEM, workload=workload, round=1, contender="ottla"))

    assert (found.attempts, found.figures["mb_s"], found.others_cores) == (attempts, kept, others_cores[kept])


def test_processor_time_is_what_the_process_itself_would_say() -> None:
    before = time.process_time()
    counted = cpu_seconds(os.getpid())
    assert before <= counted <= time.process_time()


def test_what_the_host_takes_counts_where_the_clock_has_missed_work_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    worked, stolen = machine_cpu_seconds()
    monkeypatch.setattr("bench.processes.machine_cpu_seconds", lambda: (worked, stolen))
    broker = Mock(cpu_seconds=Mock(side_effect=[1.0, 2.0]))
    disturbance = Disturbance(broker)

    monkeypatch.setattr("bench.processes.machine_cpu_seconds", lambda: (worked, stolen + 1e6))

    assert disturbance.processors() > 1


# What is asked --------------------------------------------------------------------------------------------------------


def test_every_target_is_of_a_row_that_is_measured() -> None:
    rows = {(workload.name, row.figure) for workload in WORKLOADS.values() for row in workload.rows}

    assert {(one.workload, one.figure) for one in TARGETS} <= rows


def test_some_targets_hang_on_the_congestion_control() -> None:
    assert target("fetch-1mb", "mb_s", "cubic") == 1.6
    assert target("fetch-1mb", "mb_s", "bbr") == 1.4
    assert target("raw-1mb", "mb_s", "bbr") == target("raw-1mb", "mb_s", "cubic") == 1.1
    assert target("fetch-1mb", "mb_s", "reno") is None


# The page -------------------------------------------------------------------------------------------------------------


def test_a_page_is_filled_between_its_markers_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- run: written by make bench-kafka -->\nold\n<!-- end of run -->\nafter\n")

    assert page.fill(path, {"run": r"new \1", "tables": "nowhere"}) == ["run"]

    assert path.read_text() == (
        "before\n<!-- run: written by make bench-kafka -->\nnew \\1\n<!-- end of run -->\nafter\n"
    )


def test_every_workload_has_its_place_on_the_page() -> None:
    for workload in WORKLOADS.values():
        spread = Spread(1.0, 1.0, 1.0)
        assert page.group(Standing(SYSTEM, workload, workload.rows[0], spread, spread, spread, 1, 0))


def test_a_row_in_which_we_are_behind_asks_for_an_explanation() -> None:
    behind = standing([(90.0, 100.0)])["mb_s"]

    assert behind.is_behind
    assert "not explained yet" in page.markdown_behind([behind], {})
    assert "the client is the limit" in page.markdown_behind([behind], {"raw-16kb:mb_s": "the client is the limit"})
    assert page.explanation(behind, {"system/raw-16kb:mb_s": "here", "raw-16kb:mb_s": "anywhere"}) == "here"
    assert page.explanation(behind, {"cubic/*": "elsewhere", "raw-16*:mb_s": "alike", "raw-16kb:mb_s": "it"}) == "alike"


def test_a_row_that_is_ahead_asks_for_none() -> None:
    assert page.markdown_behind([standing([(170.0, 100.0)])["mb_s"]], {}) == "There is none."


def test_a_row_that_has_not_reached_its_target_asks_for_one() -> None:
    shown = page.markdown_behind([standing([(110.0, 100.0)])["mb_s"]], {"raw-16kb:mb_s": "one thread"})
    assert "| Produce requests, acks=all: 16 KB, MB/s 1.10 (1.10) of 1.6 to reach | one thread |" in shown


def test_rows_with_one_explanation_share_a_line() -> None:
    behind = standing([(90.0, 100.0)])["mb_s"]
    shown = page.markdown_behind([behind, behind], {"*": "the client is the limit"})
    assert shown.count("16 KB, MB/s 0.90 (0.90)") == 2
    assert shown.count("the client is the limit") == 1


def test_the_explanations_that_are_written_down_are_of_rows_that_there_are() -> None:
    rows = {f"{workload.name}:{row.figure}" for workload in WORKLOADS.values() for row in workload.rows}

    for pattern in page.explanations():
        assert fnmatch.filter(rows, pattern.rpartition("/")[2]), pattern


def test_the_figures_of_a_workload_share_a_line() -> None:
    found = standing([(200.0, 100.0), (150.0, 100.0), (200.0, 100.0)])["mb_s"]
    spread = Spread(1.0, 1.0, 1.0)
    other = Standing(found.table, found.workload, CPU_S_GB, spread, spread, spread, 3, 0)

    shown = page.markdown_tables([found, other], ("Ottla", "Apache Kafka"))

    assert "| 16 KB | MB/s<br>broker CPU-s/GB | 200<br>1 | 100<br>1 | 2.00 (1.50)<br>1.00 (1.00) |" in shown


def test_other_settings_are_named_and_have_a_column_of_ratios_and_nothing_to_reach() -> None:
    spread = Spread(1.0, 1.0, 1.0)
    here, equal = (Standing(table, LARGE, MB_S, spread, spread, spread, 1, 0) for table in (SYSTEM, EQUAL))

    assert equal.target is None
    shown = page.markdown_tables([here, equal], ("Ottla", "Apache Kafka"))
    assert "`socket.send.buffer.bytes=-1`" in shown
    assert shown.endswith(
        "| workload | figure | Equal |\n|---|---|---|\n| Produce requests, acks=all: 16 KB | MB/s | 1.00 (1.00) |"
    )


def test_features_have_a_row_where_both_were_measured() -> None:
    found = {
        "tls": {name: {"median": value} for name, value in (("produce_mb_s", 50.0), ("kafka_produce_mb_s", 100.0))}
    }
    assert features.markdown(found, ("Ottla", "Apache Kafka")).splitlines()[2:] == [
        "| TLS: librdkafka produces 1,000 B | MB/s | 50 | 100 | **0.50** |"
    ]


def test_every_feature_is_a_figure_of_a_case_that_there_is() -> None:
    assert {feature.case for feature in features.FEATURES} <= {*CASES, *OF_OUR_PROCESS}


def test_the_readme_has_the_figures_of_the_recorded_run() -> None:
    assert f"\n{headlines.markdown(PAGE.read_text())}\n" in README.read_text()


def test_the_readme_shows_eight_rows_also_those_of_one_request_at_a_time() -> None:
    rows = headlines.markdown(PAGE.read_text()).splitlines()[2:]

    assert len(rows) == len(headlines.HEADLINES) == 8
    assert sum("1 x 1" in row for row in rows) == 2


def test_a_row_that_the_page_lacks_is_not_left_out_in_silence() -> None:
    page_without_starts = PAGE.read_text().replace("| start |", "| stop |")

    with pytest.raises(KeyError, match="start"):
        headlines.markdown(page_without_starts)


def test_a_journal_is_readable_by_other_programs(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", IDENTITY)
    journal.add(sample("ottla", 1, 100.0))

    first, second = (json.loads(line) for line in journal.path.read_text().splitlines())

    assert first == IDENTITY
    assert second["figures"]["mb_s"] == 100.0


# The table of landings ------------------------------------------------------------------------------------------------


def of_landing(workload: str, figure: str, pairs: list[tuple[float, float]]) -> Standing:
    row = next(row for row in WORKLOADS[workload].rows if row.figure == figure)
    ratio = Spread.of([row.advantage(mine, other) for mine, other in pairs])
    return Standing(SYSTEM, WORKLOADS[workload], row, ratio, ratio, ratio, len(pairs), 0)


def test_every_column_of_the_landings_is_a_row_of_a_workload():
    for _, workload, figure in landings.COLUMNS:
        assert figure in {row.figure for row in WORKLOADS[workload].rows}


def test_a_comparison_with_the_release_is_added_as_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = tmp_path / "landings.tsv"
    table.write_text("commit\trelease\n")
    monkeypatch.setattr(landings, "TABLE", table)
    found = [of_landing(workload, figure, [(4.0, 2.0)]) for _, workload, figure in landings.COLUMNS]

    landings.add(landings.row_of(found, "abc", "def"))
    (line,) = landings.read()
    assert line == landings.Landing("abc", "def", (0.5,) * len(landings.COLUMNS))


def test_the_table_in_the_repository_can_be_read():
    for landing in landings.read():
        assert len(landing.ratios) == len(landings.COLUMNS)


def test_a_workload_is_left_out_where_the_base_lacks_an_api_that_it_needs():
    workloads = list(WORKLOADS.values())
    everything = {int(key) for key in ApiKey}
    assert measurable(workloads, everything) == workloads
    left_out = set(workloads) - set(measurable(workloads, everything - {ApiKey.END_TXN}))
    assert {workload.name.partition("-")[0] for workload in left_out} == {"transactions"}
