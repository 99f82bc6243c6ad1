"""`make bench-kafka`, `make bench-compare BASE=<commit>`, `make profile CASE=<workload>`: brokers under the same loads.

The brokers take turns. Each sample is written to a journal: an interrupted run goes on where it was, if nothing has
changed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm

from bench import memory, profiles
from bench.checkout import checkout_of, name_of_this, packages_of, resolved
from bench.conversation import BrokerRefused
from bench.load import LoadFailed
from bench.processes import IS_COMPILED, REPOSITORY
from bench.report import RESULTS
from bench.side_by_side import catalogue, congestion, features, headlines, landings, machine, order, page
from bench.side_by_side.catalogue import Table
from bench.side_by_side.contenders import Contender, Kafka, Ottla, served_by
from bench.side_by_side.journal import Journal
from bench.side_by_side.sampling import Arena
from bench.side_by_side.standing import Standing, standings
from bench.side_by_side.workload import Workload
from dev.kafka_jars import KAFKA_VERSION, NoKafka, libraries

PAGE: Final = REPOSITORY / "docs" / "performance.md"
README: Final = REPOSITORY / "README.md"
PICTURES: Final = REPOSITORY / "docs" / "pictures"
WHOLE_ROUNDS: Final = 5
PROFILED_S: Final = 10.0
SLOWER: Final = 0.95
"""A change has cost speed if a ratio to the other commit is below this, with every pair below 1."""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.side_by_side", description=__doc__)
    parser.add_argument("--base", metavar="COMMIT", help="compare with this commit of ours instead of Apache Kafka")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORKLOAD", help="those whose names begin so")
    parser.add_argument("--tables", nargs="+", default=[], metavar="TABLE", help="system, cubic, bbr, equal; all")
    parser.add_argument("--rounds", type=int, default=WHOLE_ROUNDS)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual load, and of the warming up")
    parser.add_argument(
        "--profile", metavar="WORKLOAD", help="have py-spy look into our broker under this load instead"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has measured")
    parser.add_argument(
        "--readme", action="store_true", help="write the README's rows again from docs/performance.md, measure nothing"
    )
    parser.add_argument(
        "--landing", action="store_true", help="measure the rows of bench/landings.tsv, and add them to it"
    )
    parser.add_argument("--features", action="store_true", help="also TLS, share groups and the others of a whole run")
    parser.add_argument("--list", action="store_true", help="name all workloads, and measure nothing")
    parser.add_argument("--directory", type=Path, default=Path(os.environ.get("TMPDIR", "/var/tmp")))
    return parser.parse_args()


def main() -> int:
    """Take the missing samples, then write tables, page and picture. Returns the exit code: 0 done, 1 it cannot be
    done, 2 for bad usage, 3 where the comparison with another commit shows a loss."""
    given = options()
    if given.list:
        print("\n".join(f"{name:<40}{workload.words}" for name, workload in catalogue.WORKLOADS.items()))
        return 0
    if given.readme:
        _write_readme()
        return 0
    if given.landing:
        given.base, given.only = landings.RELEASE, list(landings.WORKLOADS)
    if given.rounds < 1 or given.scale <= 0:
        return _refuse(f"--rounds {given.rounds} and --scale {given.scale} must be above 0", 2)
    if given.base:
        base = resolved(given.base)
        if base is None:
            return _refuse(f"this checkout's history has no commit {given.base}", 2)
        given.base = base
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is changed is restored then, too
    given.directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="ottla-side-by-side-", dir=given.directory))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        if given.profile:
            return _profile(given, directory)
        try:
            jars: Path | None = libraries()
        except NoKafka as reason:
            if not given.base:
                return _refuse(f"Apache Kafka cannot be measured: {reason}", 1)
            jars = None
        if given.base:
            checkout = stack.enter_context(checkout_of(given.base, directory / "base"))
            pair: tuple[Contender, Contender] = (
                Ottla("now", "this checkout"),
                Ottla("base", given.base, packages_of(checkout, directory / "packages-of-base")),
            )
        else:
            assert jars is not None
            pair = (Ottla(), Kafka(jars))
        return _run(given, pair, jars, directory)


def _run(given: argparse.Namespace, pair: tuple[Contender, Contender], jars: Path | None, directory: Path) -> int:
    workloads = catalogue.chosen(given.only, has_java=jars is not None)
    if not workloads:
        return _refuse(f"no workload begins with {' or '.join(given.only)}; --list names them", 2)
    if given.base:
        workloads = _without_those_of_now_only(workloads, pair[1], directory)
    system = congestion.in_force()
    tables = catalogue.tables(system, congestion.available(), can_change=congestion.can_be_changed())
    if given.base:
        tables = [replace(tables[0], has_targets=False)]
    known = [table.key for table in tables]
    if wrong := [name for name in given.tables if name not in known]:
        return _refuse(f"there is no table {' or '.join(wrong)} here; there are {', '.join(known)}", 2)
    tables = [table for table in tables if not given.tables or table.key in given.tables]

    keys = (pair[0].key, pair[1].key)
    journal = _journal(given, keys, system)
    all_steps = list(order.steps(tables, workloads, keys, given.rounds))
    to_take = order.missing(iter(all_steps), journal)
    _announce(given, system, tables, all_steps, to_take)
    if to_take:
        try:
            warming = [one for one in catalogue.WORKLOADS.values() if given.base is None or not one.needs]
            _measure(given, pair, jars, directory, to_take, journal, warming)
        except (LoadFailed, BrokerRefused, KeyboardInterrupt) as reason:
            kept = f"{len(journal.samples)} samples are kept in {journal.path}; the same command goes on from there"
            return _refuse(f"\nstopped: {reason or 'interrupted'}\n{kept}", 130 if not str(reason) else 1)
    found = standings(journal.samples.values(), tables, workloads, keys)
    titles = (pair[0].title, pair[1].title)
    print(page.terminal_table(found, titles))
    about = _about(given, jars)
    print(f"written: {_write_json(found, about, journal, 'compare' if given.base else 'kafka')}")
    if given.landing:
        landings.add(landings.row_of(found, name_of_this(), given.base))
    if given.base:
        return _say_losses(found)
    is_whole = not given.only and not given.tables and given.scale >= 1 and given.rounds >= WHOLE_ROUNDS
    of_features = features.measure(given.scale) if is_whole or given.features else {}
    _write_page(found, titles, about, of_features, is_whole=is_whole)
    _say_missed(found)
    return 0


def _without_those_of_now_only(workloads: list[Workload], base: Contender, directory: Path) -> list[Workload]:
    """The workloads that the base can be measured under, too."""
    measurable = catalogue.measurable(workloads, served_by(base, directory / "asked"))
    if left_out := [one.name for one in workloads if one not in measurable]:
        print(f"{base.title} does not serve what these need: {', '.join(left_out)}")
    return measurable


def _refuse(sentence: str, code: int) -> int:
    print(sentence, file=sys.stderr)
    return code


def _profile(given: argparse.Namespace, directory: Path) -> int:
    workload = catalogue.WORKLOADS.get(given.profile)
    if workload is None or workload.measure is None or workload.needs_java:
        return _refuse(f"{given.profile} is no workload of a running broker that can be profiled; --list names all", 2)
    measure = workload.measure
    RESULTS.mkdir(exist_ok=True)
    # As it is written: py-spy sees nothing of what is compiled.
    with Arena([Ottla(packages=REPOSITORY)], {}, directory, scale=given.scale, libraries=None) as arena:
        bench = arena.bench("ottla")
        assert bench.broker.pid is not None
        measure(bench)  # once before: what is done once only is not looked for
        try:
            for form, ending in (("flamegraph", "svg"), ("raw", "stacks")):
                path = RESULTS / f"profile-{workload.name}.{ending}"
                profiles.record(bench.broker.pid, path, form, lambda: measure(bench), PROFILED_S)
                print(f"written: {path}")
        except profiles.NoProfile as reason:
            return _refuse(f"no profile: {reason}", 1)
    print(profiles.lines({workload.name: profiles.costliest(path.read_text().splitlines(), most=10)}))
    return 0


def _journal(given: argparse.Namespace, keys: tuple[str, str], system: str) -> Journal:
    against = given.base or KAFKA_VERSION
    ours = f"{name_of_this()}{' compiled' if IS_COMPILED else ''}"
    identity = {"ours": ours, "against": against, "scale": given.scale, "congestion": system}
    path = RESULTS / f"{'-'.join(keys)}-{given.scale:g}.jsonl"
    if given.fresh:
        path.unlink(missing_ok=True)
    return Journal(path, identity)


def _announce(
    given: argparse.Namespace,
    system: str,
    tables: list[Table],
    all_steps: list[order.Step],
    to_take: list[order.Step],
) -> None:
    print(f"congestion control: {system}; tables: {', '.join(table.key for table in tables)}")
    if not congestion.can_be_changed() and not given.base:
        print("Under another one nothing is measured: to change the system's takes root.")
    if len(to_take) < len(all_steps):
        print(f"{len(all_steps) - len(to_take)} of {len(all_steps)} samples are there already (--fresh forgets them)")
    minutes = _expected_s(given, to_take) / 60
    until = time.strftime("%H:%M", time.localtime(time.time() + minutes * 60))
    print(f"{len(to_take)} samples in {given.rounds} rounds: about {math.ceil(minutes)} minutes, until {until}")


def _measure(
    given: argparse.Namespace,
    pair: tuple[Contender, Contender],
    jars: Path | None,
    directory: Path,
    to_take: list[order.Step],
    journal: Journal,
    warming: Sequence[Workload],
) -> None:
    total_s = _expected_s(given, to_take)
    shape = "{l_bar}{bar}| {elapsed} of about {postfix}"
    with ExitStack() as warm, tqdm(total=total_s, bar_format=shape, file=sys.stderr, disable=None) as bar:
        bar.set_postfix_str(f"{total_s / 60:.0f} min")

        def warm_memory() -> None:
            bar.set_description("warming memory")
            warm.close()
            takes_s = memory.until_warm_s()
            warm.enter_context(memory.kept_warm())
            bar.update(takes_s)

        for settings, steps in _by_settings(to_take):
            warm_memory()
            is_warm_for = _turn(steps[0])
            with Arena(pair, settings, directory, scale=given.scale, libraries=jars) as arena:
                if any(step.workload.measure is not None for step in steps):
                    bar.set_description("warming up")
                    with _under(steps[0].table):
                        arena.warm_up(order.warm_up_s(given.scale), warming)
                    bar.update(len(pair) * (order.STARTS_S + order.warm_up_s(given.scale)))
                for step in steps:
                    if _turn(step) != is_warm_for:
                        warm_memory()
                        is_warm_for = _turn(step)
                    bar.set_description(f"{step.table.key} {step.round}/{given.rounds} {step.workload.name}")
                    with _under(step.table):
                        journal.add(arena.sample(step))
                    bar.update(step.workload.expected_s(given.scale))


def _turn(step: order.Step) -> tuple[str, int]:
    """The table and the round of a step: memory is warmed anew for each."""
    return step.table.key, step.round


def _expected_s(given: argparse.Namespace, to_take: list[order.Step]) -> float:
    rounds = len({_turn(step) for step in to_take})
    return rounds * memory.until_warm_s() + order.expected_s(to_take, given.scale, 2)


def _by_settings(to_take: list[order.Step]) -> Iterator[tuple[Mapping[str, str], list[order.Step]]]:
    """Group the steps by broker settings: the same two brokers take the steps of a group."""
    parts: dict[tuple[tuple[str, str], ...], list[order.Step]] = {}
    for step in to_take:
        parts.setdefault(tuple(step.table.settings.items()), []).append(step)
    for settings, steps in parts.items():
        yield dict(settings), steps


@contextmanager
def _under(table: Table) -> Iterator[None]:
    """A context with the congestion control of a table. Where it may not be changed, the only tables are those of the
    system's own."""
    with congestion.system_uses(table.congestion):
        yield


# What comes out -------------------------------------------------------------------------------------------------------


def _about(given: argparse.Namespace, jars: Path | None) -> dict[str, str]:
    # make hands on its other arguments in this variable, above all which Python to use.
    given_to_make = shlex.split(os.environ.get("MAKEFLAGS", "").partition("-- ")[2])
    words = ["make bench-kafka", *(word for word in given_to_make if not word.startswith("ARGS="))]
    if sys.argv[1:]:
        words.append(f'ARGS="{shlex.join(sys.argv[1:])}"')
    found = machine.about(given.directory, " ".join(words))
    if jars is not None:
        found["Apache Kafka"] = f"{KAFKA_VERSION}, Java {machine.java_version()}"
    found["rounds"] = f"{given.rounds}, after {order.warm_up_s(given.scale):.0f} s of load on each broker"
    found["congestion control"] = f"{congestion.in_force()} is the system's"
    return found


def _write_json(found: list[Standing], about: dict[str, str], journal: Journal, name: str) -> Path:
    path = RESULTS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    content = {
        "about": about,
        "rows": [
            {
                "table": one.table.key,
                "congestion": one.table.congestion,
                "workload": one.workload.name,
                "figure": one.row.figure,
                "ours": asdict(one.ours),
                "theirs": asdict(one.theirs),
                "ratio": asdict(one.ratio),
                "rounds": one.rounds,
                "disturbed": one.disturbed,
                "target": one.target,
                "is_reached": one.is_reached if one.target is not None else None,
            }
            for one in found
        ],
        "samples": [asdict(sample) for sample in journal.samples.values()],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def _write_page(
    found: list[Standing],
    titles: tuple[str, str],
    about: dict[str, str],
    of_features: Mapping[str, Any],
    *,
    is_whole: bool,
) -> None:
    """Write the tables into the page of the repository if the run was a whole one, else beside the results."""
    target, pictures = (PAGE, PICTURES) if is_whole else (RESULTS / "performance.md", RESULTS)
    if not is_whole:
        target.write_text(PAGE.read_text())
        print("A part of the workloads, or of their usual load: the page of the repository is left as it is.")
    with contextlib.suppress(ImportError):
        from bench.side_by_side.drawing import draw

        first = [one for one in found if one.row is one.workload.rows[0] or one.target is not None]
        draw(first, titles, pictures / "performance.png")
        print(f"written: {pictures / 'performance.png'}")
    parts = {
        "run": page.markdown_about(about),
        "tables": page.markdown_tables(found, titles),
        "behind": page.markdown_behind(found, page.explanations()),
        **({"features": features.markdown(of_features, titles)} if of_features else {}),
    }
    print(f"written: {target} ({', '.join(page.fill(target, parts))})")
    if is_whole:
        _write_readme()


def _write_readme() -> None:
    """Write the README's rows, with the figures of the last whole run from docs/performance.md."""
    page.fill(README, {"headlines": headlines.markdown(PAGE.read_text())})
    print(f"written: {README} (headlines)")


def _say_missed(found: list[Standing]) -> None:
    asked = [one for one in found if one.target is not None]
    missed = [one for one in asked if not one.is_reached]
    print(f"{len(asked) - len(missed)} of {len(asked)} rows have reached what they have to")
    for one in missed:
        print(f"  MISSED  {one.table.key}: {one.key} {page.ratio(one.ratio)}, to reach {one.target:.3g}")
    known = page.explanations()
    if unexplained := [one for one in found if one.is_behind and not page.explanation(one, known)]:
        print(
            f"\n{len(unexplained)} ROWS ARE BELOW 1.0 AND NOT EXPLAINED in {page.EXPLANATIONS.relative_to(REPOSITORY)}:"
        )
        for one in unexplained:
            print(f"  {one.table.key}/{one.key}  {page.ratio(one.ratio)}")


def _say_losses(found: list[Standing]) -> int:
    """Print the rows that are slower. Returns the exit code."""
    slower = [one for one in found if one.ratio.median < SLOWER and one.ratio.most < 1.0]
    for one in slower:
        print(
            f"  SLOWER  {one.key}: {one.ratio.median:.2f} of the base ({one.ratio.least:.2f} to {one.ratio.most:.2f})"
        )
    if not slower:
        print(f"no row is below {SLOWER} of the base in its median, and below it in every pair")
    return 3 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
