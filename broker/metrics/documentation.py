"""`python -m broker.metrics.documentation` writes docs/metrics.md from the declarations of all families."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

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

- `ottla.prometheus.listener` says where: `127.0.0.1:9404` by default, empty for nowhere. There is no password: give the
  port to nobody but those who watch. If nobody names a port and 9404 is taken, another one is used, and the log says
  which.
- `ottla.prometheus.partitions=false` leaves the series of partitions out; those of topics stay. A partition has {each}
  series; 5,000 partitions are a page of 6 MB.
- Names and labels are those of Apache Kafka under the JMX exporter with the rules that most boards are made for:
  domain, type and name of the bean in small letters, `PerSec` as `_total`, the other keys as labels, percentiles as the
  label `quantile`. Next to each stands the bean. The same load gives the same values here and there; what differs is
  named in `tests/parity/metrics_differences.py`, each with its reason.
- `kafka_brokers` and `kafka_topic_…` are those of kafka_exporter. `ottla_…` are ours. prometheus-client adds
  `process_…` and `python_…`.
- Counters begin at 0 with each start. "In the last minutes" is the time since the last full minute, and the minute
  before.
- The series of a request begin when it is asked for the first time.
- A type `unknown` is a counter whose name does not end in `_total`: `rate()` works.

[decisions/metrics.md](decisions/metrics.md) says why they are as they are.
"""


def metrics_page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([_INTRODUCTION.replace("{each}", str(len(FAMILIES_OF["Partitions"]))), *_sections()])


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
