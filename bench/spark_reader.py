"""A Spark that reads a topic in several ways, in turns, and prints how long each took: `python -m bench.spark_reader`.

stdin: {"ways": {name: {"format": …, option: …}}, "topic": …, "rows": …, "jars": […]}
stdout: {name: seconds}, in its last line
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Final

from bench.spark_topic import session

ROUNDS: Final = 3
"""Counted rounds; before them each way runs once, uncounted, so that code is compiled and data cached."""


def main() -> None:
    asked = json.load(sys.stdin)
    spark = session(asked["jars"])
    taken: dict[str, list[float]] = {name: [] for name in asked["ways"]}
    try:
        for number in range(ROUNDS + 1):
            # Every second round runs backwards: what one way leaves behind does not always meet the same other one.
            for name in list(taken) if number % 2 else reversed(taken):
                options = dict(asked["ways"][name])
                frame = spark.read.format(options.pop("format")).options(**options).option("subscribe", asked["topic"])
                started = time.perf_counter()
                frame.load().write.format("noop").mode("overwrite").save()
                if number:
                    taken[name].append(time.perf_counter() - started)
                elif (found := frame.load().count()) != asked["rows"]:
                    raise RuntimeError(f"{name} has {found} rows, expected {asked['rows']}")
    finally:
        spark.stop()
    sys.stdout.write(json.dumps({name: statistics.median(seconds) for name, seconds in taken.items()}) + "\n")


if __name__ == "__main__":
    main()
