"""Options that several commands share: source, reading and Spark."""

import argparse
from typing import Final

READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"
FAIL: Final = "fail"
SKIP_BATCH: Final = "skip-batch"


def add_source_options(
    parser: argparse.ArgumentParser,
    *,
    topics_required: bool = False,
    data_dir_required: bool = True,
    default_topics: str = "all but internal ones",
) -> None:
    """Add `--data-dir`, `--bootstrap`, `--topics`, `--topic-pattern`: as options `data_dirs` (a list), `bootstrap`,
    `topics` (a list), `topic_pattern`."""
    group = parser.add_argument_group("topics")
    group.add_argument(
        "--data-dir",
        dest="data_dirs",
        action="append",
        required=data_dir_required,
        metavar="DIRECTORY",
        help="a data directory of the broker; once for each of its log.dirs",
    )
    group.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="the broker that works in it; without it, none may be running"
    )
    named = group.add_mutually_exclusive_group(required=topics_required)
    named.add_argument("--topics", type=_names, default=[], metavar="NAME[,NAME...]", help=f"default: {default_topics}")
    named.add_argument("--topic-pattern", metavar="REGEX", help="topics whose whole name matches")


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Add `--isolation` and `--on-damage`: as options `isolation` and `on_damage`."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--isolation",
        choices=(READ_COMMITTED, READ_UNCOMMITTED),
        default=READ_COMMITTED,
        help="whether records of aborted transactions are left out (default: %(default)s)",
    )
    group.add_argument(
        "--on-damage",
        choices=(FAIL, SKIP_BATCH),
        default=FAIL,
        help="what is done about a damaged batch: end with exit code 1, or report it and go on (default: %(default)s)",
    )


def add_spark_options(parser: argparse.ArgumentParser, *, is_needed: bool = True) -> None:
    """Add `--master` and `--spark-conf`: as options `master` and `spark_conf` (a list of pairs).

    `master` is None by default for a command that does not need Spark.
    """
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        default="local[*]" if is_needed else None,
        metavar="URL",
        help=f"where Spark does the work (default: {'%(default)s' if is_needed else 'this process does it, no Spark'})",
    )
    group.add_argument(
        "--spark-conf",
        action="append",
        type=_setting,
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark, such as spark.driver.memory=4g",
    )


def _names(text: str) -> list[str]:
    if "" in (names := [name.strip() for name in text.split(",")]):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected topic names with commas between them")
    return names


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected spark.some.key=value")
    return key, value
