"""A process that archives or compacts and is killed at a step: `python -m tests.pipeline.archive.killed`.

Arguments: what (`archive` or `compact`), the archive, the partition's directory, up to which offset it is read, the
number of the step, and perhaps a format. Steps are counted from 0; their names go to stdout as they come.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pipeline.reading.ranges import Bounds
from pipeline.source import PartitionSource
from tests.pipeline.archive.archives import TOPIC_ID, archive, compacted
from tests.support.partitions import TOPIC

RANGE_BYTES = 800


def main() -> None:
    what, dest, directory, until, number, *table_format = sys.argv[1:]
    left = int(number)

    def at(step: str) -> None:
        nonlocal left
        sys.stdout.write(f"{step}\n")
        sys.stdout.flush()
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    if what == "compact":
        compacted(Path(dest), at=at)
        return
    bounds = Bounds(0, int(until), int(until))
    source = PartitionSource(TOPIC, 0, directory, TOPIC_ID, bounds, False)
    archive(Path(dest), source, at=at, range_bytes=RANGE_BYTES, table_format=next(iter(table_format), None))


if __name__ == "__main__":
    main()
