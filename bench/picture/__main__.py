"""`make boards-picture`: runs broker, clients and Prometheus for ten minutes, then draws every panel of every board.

It fails if a panel has no data, and writes a picture of each board to docs/pictures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.picture.drawing import Run, draw
from bench.picture.load import Load
from bench.picture.panels import Shown, shown
from boards.all_boards import BOARDS
from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.prometheus import Prometheus, configuration_for
from dev.repository import REPOSITORY
from tests.interop.programs import Missing, prometheus

PICTURES: Final = REPOSITORY / "docs" / "pictures"

INTERVAL_S: Final = 5.0

STOPPED_AT: Final = 0.4
KILLED_AT: Final = 0.75
"""When the broker is killed, as a share of the duration."""

SETTINGS: Final = {
    "log.retention.check.interval.ms": "10000",
    "offsets.topic.num.partitions": "5",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "500",
}


def run(directory: Path, program: str, duration_s: float) -> tuple[list[Shown], Run]:
    """Run stock clients, with the broker stopped once and killed once. Returns the data of all panels."""
    port = port_below_client_ports()
    instance = f"127.0.0.1:{port_below_client_ports(above=port)}"
    broker = BrokerProcess(directory, settings={**SETTINGS, "ottla.prometheus.listener": instance}, port=port)
    watching = Prometheus(program, directory / "prometheus", configuration_for(instance, interval_s=INTERVAL_S))
    load = Load(f"127.0.0.1:{port}", duration_s)
    try:
        broker.start()
        watching.start()
        load.start()
        began_s = time.time()
        _wait_until(began_s + STOPPED_AT * duration_s)
        stopped_s = time.time()
        broker.stop()
        broker.start()
        _wait_until(began_s + KILLED_AT * duration_s)
        killed_s = time.time()
        broker.kill()
        broker.start()
        _wait_until(began_s + duration_s)
        panels = list(
            shown(watching, instance=instance, start_s=began_s, end_s=began_s + duration_s, step_s=INTERVAL_S)
        )
    finally:
        load.stop()
        watching.close()
        broker.close()
    return panels, Run(began_s, began_s + duration_s, (stopped_s, killed_s))


def _wait_until(then_s: float) -> None:
    time.sleep(max(0.0, then_s - time.time()))


def main() -> int:
    """Run, query and draw. Returns the exit code: 0 if every panel has data."""
    parser = argparse.ArgumentParser(prog="python -m bench.picture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="where they are written")
    options = parser.parse_args()
    try:
        program = prometheus() / "prometheus"
    except Missing as reason:
        print(f"no picture: {reason}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="ottla-picture-") as directory:
        panels, time_of = run(Path(directory), str(program), options.minutes * 60)
    options.pictures.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        path = options.pictures / f"{board.name}.png"
        draw([one for one in panels if one.board is board], path, time_of)
        print(f"{path}: {path.stat().st_size:,} bytes")
    faults = [f"{one.where}: {one.fault}" for one in panels if one.fault]
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(panels) - len(faults)} of {len(panels)} panels had something to show")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
