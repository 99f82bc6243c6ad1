"""`python -m broker.metrics.documentation` writes docs/metrics.md from the declarations of all families."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from broker.metrics import lag
from broker.metrics.series import Family
from broker.metrics.subjects import FAMILIES_OF

PATH: Final = Path(__file__).parents[2] / "docs" / "metrics.md"

_INTRODUCTION: Final = """\
# Metrics

<!-- Written by `python -m broker.metrics.documentation`; change the declarations in broker/metrics instead. -->

The broker tells Prometheus what it does, without an agent or an exporter beside it:

```
curl http://127.0.0.1:9404/metrics
```

| path | answer |
|---|---|
| `/metrics` | everything below, as text or as OpenMetrics, whichever is asked for |
| `/healthz` | 200 while the process works |
| `/readyz` | 200 once Kafka's clients are served; 503 before, with how far the start has come, and during a stop |

- `ottla.prometheus.listener` says where: `127.0.0.1:9404` by default, in a container (`--container`) port 9404 of every
  interface, empty for nowhere. There is no password: give the port to those who watch, and to no one else. If no port
  is set and 9404 is taken, another port is used, and the log says which.
- `ottla.prometheus.partitions=false` leaves the series of partitions out, also those of groups; those of topics stay,
  and so do the sums of a group over a topic. A partition has {each} series, and {of_group} more for each group that has
  committed an offset of it; 5,000 partitions are a page of 6 MB.
- Clients choose how many groups there are. When the labels of groups, of their topics, or of their partitions are
  longer than 8 MB together (80,000 lines of a usual length), those that come last have no series, and
  `ottla_consumergroup_left_out` counts them.
- Names and labels are those of Apache Kafka under the JMX exporter with the rules that most boards are made for:
  domain, type and name of the bean in small letters, `PerSec` as `_total`, the other keys as labels, percentiles as the
  label `quantile`. Next to each stands the bean. The same load gives the same values here and there; what differs is
  named in `tests/parity/metrics_differences.py`, each with its reason.
- `kafka_brokers`, `kafka_topic_…` and `kafka_consumergroup_…` are those of kafka_exporter. A group has series of the
  partitions of which it has committed an offset; its lag is what stands between that and the high watermark, and never
  below 0. `ottla_…` are ours. prometheus-client adds `process_…` and `python_…`.
- Counters begin at 0 with each start. "In the last minutes" is the time since the last full minute, and the minute
  before.
- The series of a request begin when it is asked for the first time.
- The type `unknown` is that of names ending in `_count` or `_sum`, and of percentiles: to Prometheus these, and
  `quantile`, are those of histograms and summaries. `rate()` works on a count "since the start".

[decisions/metrics.md](decisions/metrics.md) says why they are as they are.
"""


def metrics_page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([_introduction(), *_sections()])


def _introduction() -> str:
    each, of_group = len(FAMILIES_OF["Partitions"]), sum("partition" in family.labels for family in lag.FAMILIES)
    return _INTRODUCTION.replace("{each}", str(each)).replace("{of_group}", str(of_group))


def _sections() -> Iterator[str]:
    for title, families in FAMILIES_OF.items():
        yield f"## {title}\n\n| series | type | | in Kafka |\n|---|---|---|---|"
        yield from map(_line, families)
        yield ""


def _line(family: Family) -> str:
    labels = f"{{{', '.join(family.labels)}}}" if family.labels else ""
    bean = f"`{family.bean}`" if family.bean else ""
    return f"| `{family.name}{labels}` | {family.kind.value} | {family.help} | {bean} |"


if __name__ == "__main__":
    PATH.write_text(metrics_page(), encoding="utf-8")
