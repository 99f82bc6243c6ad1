"""`python -m config.documentation` writes docs/configuration.md from server.yaml, the declarations and Kafka's list."""

import os
from collections.abc import Iterator
from typing import Final

from config.broker_settings import BROKER_SETTINGS
from config.class_settings import CLASS_SETTINGS, Where
from config.definitions import definitions
from config.dynamic import is_dynamic
from config.help import all_help
from config.log_config import OUR_TOPIC_SETTINGS, TOPIC_SETTINGS
from config.our_defaults import OUR_DEFAULTS
from config.removed_settings import STOPPING

PATH: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "docs", "configuration.md")

_INTRODUCTION: Final = """\
# Configuration

<!-- Written by `python -m config.documentation`; change config/server.yaml or the declarations in config/ instead. -->

Settings have Kafka's names, types, defaults and limits. They are read from a file and from the command line:

```
ottla --config server.yaml -o listeners=PLAINTEXT://0.0.0.0:9092 -o advertised.listeners=PLAINTEXT://broker.example:9092
```

- The file is flat YAML, or a Kafka `server.properties` as it is; the extension decides, or else the content.
  `config/server.yaml` has every line of the tables below to copy from.
- `-o key=value` wins over the file, and of two the later one.
- Values are read as text by Kafka's type, never by YAML's: `num.io.threads: 22:22` is refused and not 1342.
- A wrong value or an unknown name stops the start with one sentence: the key, the value, what was expected, and the
  name that was probably meant.
- `listener.name.<name>.max.connections` and `listener.name.<name>.max.connection.creation.rate` hold for one listener.
- In a container (`--container`) they come from `KAFKA_…` variables and a mounted file, too:
  [operations](operations.md#containers).
- `broker.id` is another name of `node.id`, and `log.dir` of `log.dirs`.

## Changed while it runs

What the tables below mark with ⟳ can be changed without a restart, by AlterConfigs, IncrementalAlterConfigs and every
tool that speaks them. It takes effect at once, is kept in the metadata log, and wins over the file:

```
kafka-configs --bootstrap-server localhost:9092 --alter \\
    --entity-type brokers --entity-name 1 --add-config num.io.threads=16
kafka-configs --bootstrap-server localhost:9092 --alter \\
    --entity-type brokers --entity-default --add-config log.retention.ms=3600000
```

- The strongest first: the topic's own, this broker's (`--entity-name 1`), all brokers' (`--entity-default`), the
  command line, the file, the default. DescribeConfigs lists them all.
- Topics without a value of their own follow the broker's from the next request on.
- Numbers of threads are at most doubled or halved in one step, as in Kafka. Fewer `num.network.threads` close the
  connections of those that go once their requests are answered.
- `listener.name.<name>.max.connections` and `listener.name.<name>.max.connection.creation.rate` can be changed too.
- Keys, certificates and truststores of a listener can be changed ([security.md](security.md#new-certificates)).
- Kafka can also change `listeners` and `listener.security.protocol.map` while it runs; here the change is
  refused, as are Java classes and `config.providers`. A value that an adopted directory brings and that is invalid
  here is ignored with a line in the log.
- `cordoned.log.dirs` can be changed from metadata.version 30 (4.3-IV0) on, as in Kafka. In the file it counts with
  every metadata.version.
- Levels of loggers (`--entity-type broker-loggers`) hold until the process ends. Settings of groups and client metrics
  are checked, kept and described.
"""

_TOPICS: Final = """\
## Topics

A topic has Kafka's 37 settings, which CreateTopics, AlterConfigs and IncrementalAlterConfigs set and DescribeConfigs
lists; where a topic has no value of its own, the broker's setting counts. These are ours:
"""

_ARCHIVE: Final = """
```
kafka-configs --bootstrap-server localhost:9092 --alter \\
    --entity-type topics --entity-name orders --add-config ottla.archive.group=archive.orders
```

- What is held goes with the next look of retention after the group's commit (`log.retention.check.interval.ms`).
- A group that has committed nothing of a partition, or does not exist, or is not loaded yet holds all of it. Its
  commits do not expire (`offsets.retention.minutes`) while a topic names it; if they are deleted, it holds all
  again.
- `ottla.archive.max.bytes` counts for each partition, as `retention.bytes` does. What is over it goes although it is
  not archived, and the log says so. Without it a disk that fills refuses producers ([operations](operations.md)).
- DeleteRecords, the deletion of a topic and compaction do not wait for the group.
- No broker setting names a group: it would hold topics that are not archived, until the disk is full.
- `kafka-topics --create --config` knows Kafka's settings only: create the topic, then set it with `kafka-configs`.

[decisions/archived-before-deleted.md](decisions/archived-before-deleted.md) says why;
[metrics.md](metrics.md#archived-before-deleted) how much is held.
"""

_REFUSED: Final = """\
## Refused

The broker does not start with a setting that promises what it would not keep:

- TLS that [security.md](security.md) does not have: JKS files, classes of Java, versions before TLS 1.2; keys and
  certificates that cannot be used (a secured listener of the controller is not opened, so its settings pass);
- SASL that [security.md](security.md) does not have: other mechanisms, Java classes, `security.inter.broker.protocol`
  other than `PLAINTEXT`;
- classes of Java that decide who somebody is or what he may do, where they are not Kafka's own, named in full:
  {classes}; on a listener with SASL or TLS those of its own;
- `config.providers`, `remote.log.storage.system.enable=true`;
- `process.roles` without `broker`, and with `broker` alone where no setting names the controllers;
- names of settings that Kafka has removed, where another setting has to say the same now: {removed}. The sentence
  says what to write instead. Other names that Kafka 2.8 to 4.3 had are passed over with a line in the log that says
  since which version they are gone; names that no version had stop the start.

Taken as 1 with a line in the log, where the node has its own controller and no listener of it, so that it is alone:
larger values of `default.replication.factor`, `offsets.topic.replication.factor`,
`transaction.state.log.replication.factor` and `transaction.state.log.min.isr`,
`share.coordinator.state.topic.replication.factor` and `share.coordinator.state.topic.min.isr`.
"""


def configuration_page() -> str:
    """The text of docs/configuration.md, as Markdown."""
    classes = (name for name, one in CLASS_SETTINGS.items() if one.decides and one.where is Where.EVERY_START)
    refused = _REFUSED.format(
        classes=", ".join(map(_code, ("authorizer.class.name", *classes))), removed=", ".join(map(_code, STOPPING))
    )
    return "\n".join([_INTRODUCTION, *_our_defaults(), *_sections(), *_topics(), refused, *_without_effect()])


def _our_defaults() -> Iterator[str]:
    yield "## Where a default is not Kafka's\n"
    yield "| setting | here | Kafka | why |\n|---|---|---|---|"
    for key, ours in OUR_DEFAULTS.items():
        kafkas = definitions("broker")["log.dir" if key == "log.dirs" else key].default
        yield f"| `{key}` | `{ours.value}` | {_code(kafkas) if kafkas else 'must be given'} | {ours.reason} |"


def _sections() -> Iterator[str]:
    section = None
    for entry in all_help().values():
        if entry.section != section:
            section = entry.section
            yield f"\n## {section}\n\n| setting | | default | values | |\n|---|---|---|---|---|"
        declaration = BROKER_SETTINGS[entry.key]
        values = f"{declaration.type.name.lower()} {declaration.allowed}".rstrip()
        change = "⟳" if is_dynamic(entry.key) else ""
        yield f"| `{entry.key}` | {change} | {_code(declaration.default)} | {values} | {entry.line} |"
    yield ""


def _topics() -> Iterator[str]:
    yield _TOPICS
    yield "| topic setting | default | values | |\n|---|---|---|---|"
    for key, line in OUR_TOPIC_SETTINGS.items():
        declaration = TOPIC_SETTINGS[key]
        default = f"the broker's `{key}`" if key in BROKER_SETTINGS else _code(declaration.default)
        yield f"| `{key}` | {default} | {declaration.type.name.lower()} {declaration.allowed} | {line} |"
    yield _ARCHIVE


def _without_effect() -> Iterator[str]:
    yield "## Accepted without effect\n"
    yield "Kafka 4.4 has these settings too. Values are checked, and the log names in one line those that were given.\n"
    names = [name for name in definitions("broker") if name not in BROKER_SETTINGS and not _is_refused(name)]
    yield ", ".join(map(_code, names)) + "\n"


def _is_refused(name: str) -> bool:
    return name.startswith(("ssl.", "sasl.")) or name in (
        "security.inter.broker.protocol",
        *(class_name for class_name, one in CLASS_SETTINGS.items() if one.where is not Where.NOWHERE),
        "broker.id",
        "log.dir",
    )


def _code(text: str | None) -> str:
    if text is None:
        return "not set"
    return f"`{text}`" if text else "empty"


if __name__ == "__main__":
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(configuration_page())
