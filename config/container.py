"""Settings of a container: environment variables and a mounted file, as Apache Kafka's own image takes them.

KAFKA_NUM_PARTITIONS                                   num.partitions                                  _ is a dot
KAFKA_LISTENER_NAME_PLAINTEXT__HOST_MAX_CONNECTIONS    listener.name.plaintext_host.max.connections   __ an underscore
KAFKA_SOME___NAME                                      some-name                                     ___ a dash
CLUSTER_ID                                             the cluster id of a new directory

Each source wins over those before it: what a container needs, the mounted file, the environment, the command line.
The rule is that of `kafka.docker.KafkaDockerWrapper` in Kafka 4.4.0's jar, which a test runs where it is at hand; what
it leaves to shell scripts stands in Kafka's repository under docker/resources/common-scripts.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from config.broker_settings import BROKER_SETTINGS
from config.definitions import nearest_name
from config.errors import SettingsError
from config.listen_address import METRICS_LISTENER, ListenAddress
from config.parse import LoadedSettings, combine_settings, is_setting
from config.refusals import is_sasl_key, is_security_key
from config.removed_settings import removed_sentence
from config.topics_at_start import KEY as TOPICS_AT_START

MOUNTED_FILE: Final = "/mnt/shared/config/server.properties"

DEFAULTS: Final = {
    "log.dirs": "/var/lib/kafka/data",
    "listeners": "PLAINTEXT://:9092",
}
"""Defaults in a container: the image's volume, and a port that can be published."""

UNDER_A_TEST: Final = {"ottla.control.listener": ":9093"}
"""Defaults of a broker for tests in a container: its ports are reached as far as they are published."""

_METRICS: Final = ListenAddress("", 9404)
"""The default metrics endpoint in a container. As a default, not a given setting, it moves if its port is taken."""

_ADVERTISED: Final = {"advertised.listeners": "PLAINTEXT://localhost:9092"}
"""Advertised in a container without listener settings: reachable where its port is published unchanged."""

_PREFIX: Final = "KAFKA_"
_FOR_JAVA: Final = frozenset(
    {
        *("KAFKA_GC_LOG_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_JMX_HOSTNAME", "KAFKA_JMX_OPTS", "KAFKA_JMX_PORT"),
        *("KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_OPTS", "KAFKA_VERSION"),
    }
)
_FOR_LOG4J: Final = frozenset(
    {"KAFKA_LOG4J_LOGGERS", "KAFKA_LOG4J_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_TOOLS_LOG4J_LOGLEVEL"}
)
_CREATE_TOPICS: Final = "KAFKA_CREATE_TOPICS"
_TOPIC_WITH_REPLICAS: Final = r"([^:]+):([^:]+):([0-9]{1,9})(?::([a-z]+))?"


def load_container_settings(
    path: str | None,
    overrides: Sequence[tuple[str, str]],
    environment: Mapping[str, str],
    *,
    mounted_file: str = MOUNTED_FILE,
) -> LoadedSettings:
    """Read, check and combine the settings of a container.

    Args:
        path: A settings file; None for the mounted one, if there is one.
        overrides: Names and texts from the command line.
        environment: All variables; only those that Kafka's image reads are looked at.
        mounted_file: Where the image has a directory for it.

    Raises:
        SettingsError: As `config.parse.load_settings` does.
    """
    from config.sources import read_settings_file  # YAML costs 20 ms

    if path is None and os.path.exists(mounted_file):
        path = mounted_file
    from_file = {} if path is None else read_settings_file(path)
    notices: list[str] = []
    from_environment = settings_of_environment(environment, notices)
    given = [from_file, from_environment, dict(overrides)]
    listens = any(key in source for source in given for key in ("listeners", "advertised.listeners"))
    defaults = DEFAULTS if listens else DEFAULTS | _ADVERTISED
    settings, others = combine_settings([defaults, *given])
    if METRICS_LISTENER not in settings.given:
        settings = settings.replace(ottla_prometheus_listener=_METRICS)
    return LoadedSettings(settings, notices + others)


def settings_of_environment(environment: Mapping[str, str], notices: list[str]) -> dict[str, str]:
    """The texts that the variables give to settings, by name; ``notices`` gets a line about those that give none.

    Raises:
        SettingsError: A variable wants TLS or SASL in a way that only Kafka's image has.
    """
    texts: dict[str, str] = {}
    if cluster_id := environment.get("CLUSTER_ID"):
        texts["ottla.cluster.id"] = cluster_id
    for variable in sorted(environment):
        if not variable.startswith(_PREFIX) or variable in _FOR_JAVA | _FOR_LOG4J | {_CREATE_TOPICS}:
            continue
        key = setting_of_variable(variable)
        if is_setting(key):
            texts[key] = environment[variable]
        else:
            notices.append(_passed_over(variable, key))
    if topics := _topics_to_create(environment.get(_CREATE_TOPICS, ""), notices):
        texts[TOPICS_AT_START] = ",".join(filter(None, (texts.get(TOPICS_AT_START), topics)))
    _name_together(environment, _FOR_JAVA, "without effect here, where no Java runs", notices)
    _name_together(environment, _FOR_LOG4J, "without effect here, where log4j writes no log", notices)
    if texts.get("advertised.listeners") and not texts.get("listeners"):
        texts["listeners"] = re.sub("://[^:]*:", "://0.0.0.0:", texts["advertised.listeners"])
    return texts


def setting_of_variable(variable: str) -> str:
    """The name that a variable stands for, whether or not there is such a setting."""
    name = variable.removeprefix(_PREFIX).lower()
    return name.replace("_", ".").replace("...", "-").replace("..", "_")


def _passed_over(variable: str, key: str) -> str:
    """The line about a variable that names no setting. Its value may be a secret and is not repeated.

    The start is not refused as with a name in a file: Kubernetes gives a container KAFKA_PORT and more of that kind,
    for no other reason than a service that is called kafka.
    """
    if removed := removed_sentence(key):
        return f"{variable} is ignored: {removed}"
    if is_sasl_key(key):
        raise SettingsError(f"{variable} is set, and names no setting of SASL that exists")
    if is_security_key(key):
        raise SettingsError(
            f"{variable} is set, and names no setting of TLS that exists; expected KAFKA_SSL_KEYSTORE_LOCATION, "
            "KAFKA_SSL_KEYSTORE_PASSWORD and the like"
        )
    nearest = nearest_name(key, BROKER_SETTINGS)
    hint = f"; did you mean {_variable(nearest)}?" if nearest else ""
    return f"{variable} is ignored: it names no setting{hint}"


def _variable(key: str) -> str:
    return _PREFIX + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _topics_to_create(text: str, notices: list[str]) -> str:
    """KAFKA_CREATE_TOPICS, as older images have it (name:partitions:replicas:policy), in our own form."""
    topics = []
    has_replicas = False
    for entry in filter(None, map(str.strip, text.split(","))):
        parts = re.fullmatch(_TOPIC_WITH_REPLICAS, entry)
        if parts is None:
            topics.append(entry)
            continue
        name, partitions, replicas, policy = parts.groups()
        has_replicas = has_replicas or int(replicas) > 1
        topics.append(f"{name}:{partitions}" + (f":cleanup.policy={policy}" if policy else ""))
    if has_replicas:
        notices.append(f"taken as 1, because there is one node: the replicas in {_CREATE_TOPICS}")
    return ",".join(topics)


def _name_together(environment: Mapping[str, str], variables: frozenset[str], reason: str, notices: list[str]) -> None:
    if given := sorted(variables & environment.keys()):
        notices.append(f"{reason}: {', '.join(given)}")
