"""A compose file written for Apache Kafka's image: what its variables come to here, and what is said of the others."""

import os
import subprocess
from pathlib import Path

import pytest

from config.container import load_container_settings, setting_of_variable, settings_of_environment
from config.errors import SettingsError
from config.listen_address import ListenAddress
from config.listeners import Listener
from config.parse import LoadedSettings

KAFKAS_SINGLE_NODE_EXAMPLE = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
    "KAFKA_LISTENERS": "CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
    "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
}
"""The variables of the compose file that Kafka ships for one node without security."""


def load(
    environment: dict[str, str] | None = None, *overrides: tuple[str, str], mounted: Path | None = None
) -> LoadedSettings:
    return load_container_settings(None, overrides, environment or {}, mounted_file=str(mounted or "/nowhere"))


def notices(environment: dict[str, str]) -> list[str]:
    said: list[str] = []
    settings_of_environment(environment, said)
    return said


def told(loaded: LoadedSettings) -> list[str]:
    """What the broker opens, and what it tells its clients."""
    return [str(one) for one in (*loaded.settings.listeners, *loaded.settings.advertised_listeners)]


# Names


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_LOG_DIRS", "log.dirs"),
        ("KAFKA_LISTENER_NAME_PLAINTEXT__HOST_MAX_CONNECTIONS", "listener.name.plaintext_host.max.connections"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_A____B", "a-.b"),
        ("KAFKA_KAFKA_THING", "kafka.thing"),
        ("KAFKA_Mixed_CASE", "mixed.case"),
        ("KAFKA_OTTLA_TOPICS_AT_START", "ottla.topics.at.start"),
    ],
)
def test_a_variable_names_a_setting_by_kafkas_rule(variable: str, key: str) -> None:
    assert setting_of_variable(variable) == key


def test_the_rule_is_the_one_that_kafkas_own_wrapper_follows(tmp_path: Path) -> None:
    libraries = os.environ.get("OTTLA_TEST_KAFKA_LIBS")
    if libraries is None:
        pytest.skip("OTTLA_TEST_KAFKA_LIBS names no directory with Kafka's jars")
    directories = {name: tmp_path / name for name in ("default", "mounted", "final")}
    for directory in directories.values():
        directory.mkdir()
    (directories["default"] / "server.properties").write_text("\n")
    for name in ("log4j2.yaml", "tools-log4j2.yaml"):
        (directories["default"] / name).write_text(
            "Configuration:\n  Properties:\n    Property: []\n  Appenders:\n    Console: []\n"
            "  Loggers:\n    Root:\n      level: INFO\n    Logger: []\n"
        )
    odd_ones = {
        "KAFKA_A__B___C____D_____E": "under",
        "KAFKA_KAFKA_Mixed_CASE": "1",
        "KAFKA_EMPTY": "",
        "KAFKA_SPACED": "two words",
        "KAFKA_LISTENER_NAME_PLAINTEXT__HOST_MAX_CONNECTIONS": "4",
        "NOT_KAFKA_OURS": "1",
    }
    names = "VERSION HEAP_OPTS OPTS JMX_OPTS JMX_HOSTNAME JVM_PERFORMANCE_OPTS GC_LOG_OPTS"
    names += " LOG4J_OPTS LOG4J_ROOT_LOGLEVEL LOG4J_LOGGERS TOOLS_LOG4J_LOGLEVEL"
    of_the_image = {f"KAFKA_{name}": "" for name in names.split()}
    environment = KAFKAS_SINGLE_NODE_EXAMPLE | {"KAFKA_LOG_DIRS": str(tmp_path / "data")} | odd_ones | of_the_image
    command = ["java", "-cp", f"{libraries}/*", "kafka.docker.KafkaDockerWrapper", "setup"]
    command += ["-D", str(directories["default"]), "-M", str(directories["mounted"]), "-F", str(directories["final"])]

    path = {"PATH": os.environ["PATH"]}
    subprocess.run(command, env=path | environment, check=True, capture_output=True, timeout=100)

    lines = (directories["final"] / "server.properties").read_text().strip().splitlines()
    kafkas = dict(line.split("=", 1) for line in lines)
    variables = [name for name in environment if name.startswith("KAFKA_") and name not in of_the_image]
    assert kafkas == {setting_of_variable(name): environment[name] for name in variables}
    assert not {setting_of_variable(name) for name in of_the_image} & kafkas.keys()
    said = notices(of_the_image)
    assert all(any(name in line and "without effect here" in line for line in said) for name in of_the_image)


# A compose file


def test_the_variables_of_kafkas_own_compose_file_are_all_understood() -> None:
    settings, said = load(KAFKAS_SINGLE_NODE_EXAMPLE)

    assert settings.ottla_cluster_id == "4L6g3nShT-eMCtK--X86sw"
    assert settings.log_dirs == ("/tmp/kraft-combined-logs",)
    assert settings.listeners == (
        Listener(name="PLAINTEXT_HOST", host="", port=9092),
        Listener(name="PLAINTEXT", host="", port=19092),
    )
    assert settings.advertised_listeners[1] == Listener(name="PLAINTEXT", host="broker", port=19092)
    assert said == ["not asked, because this node is its own controller: controller.quorum.voters"]


def test_a_container_that_is_told_nothing_is_reached_where_its_port_is_published() -> None:
    loaded = load()

    assert told(loaded) == ["PLAINTEXT://:9092", "PLAINTEXT://localhost:9092"]
    assert loaded.settings.log_dirs == ("/var/lib/kafka/data",)


def test_where_only_advertised_listeners_are_given_all_interfaces_are_listened_on() -> None:
    loaded = load({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker.example:19092"})

    assert told(loaded) == ["PLAINTEXT://0.0.0.0:19092", "PLAINTEXT://broker.example:19092"]


def test_an_empty_variable_of_listeners_says_nothing_as_in_kafkas_image() -> None:
    environment = {"KAFKA_LISTENERS": "", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:9092", "CLUSTER_ID": ""}

    assert told(load(environment)) == ["PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://broker:9092"]
    assert load(environment).settings.ottla_cluster_id is None


@pytest.mark.parametrize(
    "cluster_id", ["Q2FzZVN0dWR5Q2x1c3Rlcg==", "my cluster", "a/b+c", "-x", "{id}", "0", "\N{SNOWMAN}", "x" * 300]
)
def test_any_text_is_a_cluster_id_as_for_kafkas_format_tool(cluster_id: str) -> None:
    assert load({"CLUSTER_ID": cluster_id}).settings.ottla_cluster_id == cluster_id


def test_listeners_without_advertised_ones_are_advertised_under_their_own_names() -> None:
    loaded = load({"KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:19092"})

    assert told(loaded) == ["PLAINTEXT://127.0.0.1:19092"] * 2


def test_the_mounted_file_gives_way_to_the_environment_and_that_to_the_command_line(tmp_path: Path) -> None:
    mounted = tmp_path / "server.properties"
    mounted.write_text("log.dir=/from/file\nnum.partitions=2\nnum.io.threads=2\nnum.network.threads=2\n")
    environment = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_NUM_IO_THREADS": "3"}

    settings = load(environment, ("num.partitions", "4"), mounted=mounted).settings

    assert settings.log_dirs == ("/from/file",)
    assert (settings.num_partitions, settings.num_io_threads, settings.num_network_threads) == (4, 3, 2)
    assert "log.dir" not in settings.given


def test_a_file_that_is_named_is_read_instead_of_the_mounted_one(tmp_path: Path) -> None:
    mounted, named = tmp_path / "server.properties", tmp_path / "own.yaml"
    mounted.write_text("num.partitions=2\n")
    named.write_text("num.io.threads: 3\n")

    settings = load_container_settings(str(named), [], {}, mounted_file=str(mounted)).settings

    assert (settings.num_partitions, settings.num_io_threads) == (1, 3)


# Topics


def test_topics_are_taken_in_the_form_of_older_images() -> None:
    settings, said = load({"KAFKA_CREATE_TOPICS": "orders:6:3, audit:1:1:compact,payments:2,\n"})

    assert [(topic.name, topic.partitions, topic.configs) for topic in settings.ottla_topics_at_start] == [
        ("orders", 6, {}),
        ("audit", 1, {"cleanup.policy": "compact"}),
        ("payments", 2, {}),
    ]
    assert said == ["taken as 1, because there is one node: the replicas in KAFKA_CREATE_TOPICS"]


def test_both_lists_of_topics_count() -> None:
    environment = {"KAFKA_CREATE_TOPICS": "orders:6:1", "KAFKA_OTTLA_TOPICS_AT_START": "audit:1:retention.ms=1000"}

    assert [topic.name for topic in load(environment).settings.ottla_topics_at_start] == ["audit", "orders"]


# What can't be kept


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        (
            {"KAFKA_NUM_PARTITONS": "3"},
            "KAFKA_NUM_PARTITONS is ignored: it names no setting; did you mean KAFKA_NUM_PARTITIONS?",
        ),
        ({"KAFKA_SERVICE_HOST": "10.0.0.1"}, "KAFKA_SERVICE_HOST is ignored: it names no setting"),
        ({"KAFKA_": "x"}, "KAFKA_ is ignored: it names no setting"),
        (
            {"KAFKA_PORT": "tcp://10.0.0.1:9092"},
            "KAFKA_PORT is ignored: port no longer exists: Kafka 3.0 removed it: use listeners=PLAINTEXT://host:port",
        ),
        (
            {"KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181"},
            "KAFKA_ZOOKEEPER_CONNECT is ignored: zookeeper.connect no longer exists: Kafka 4.0 removed it: "
            "leave it out, metadata lives in the data directory",
        ),
        (
            {"KAFKA_HEAP_OPTS": "-Xmx1G", "KAFKA_JMX_PORT": "9101"},
            "without effect here, where no Java runs: KAFKA_HEAP_OPTS, KAFKA_JMX_PORT",
        ),
        (
            {"KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN", "KAFKA_LOG4J_LOGGERS": "kafka=DEBUG"},
            "without effect here, where log4j writes no log: KAFKA_LOG4J_LOGGERS, KAFKA_LOG4J_ROOT_LOGLEVEL",
        ),
    ],
)
def test_a_variable_that_sets_nothing_is_told_in_one_line(environment: dict[str, str], line: str) -> None:
    assert notices(environment) == [line]
    assert load(environment).notices == [line]


def test_the_value_of_an_unknown_variable_is_not_repeated() -> None:
    assert "secret" not in " ".join(notices({"KAFKA_CLIENT_PASSWORDS": "secret"}))


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"KAFKA_NUM_PARTITIONS": "many"}, "num.partitions is 'many', expected a whole number from 1"),
        (
            {"KAFKA_ADVERTISED_LISTENERS": "SSL://broker:9093"},
            "the listener SSL has TLS, expected its key and certificate in ssl.keystore.location",
        ),
        (
            {"KAFKA_SASL_JASS_CONFIG": "geheim"},
            "KAFKA_SASL_JASS_CONFIG is set, and names no setting of SASL that exists",
        ),
        (
            {"KAFKA_SSL_KEYSTORE_FILENAME": "k.jks"},
            "KAFKA_SSL_KEYSTORE_FILENAME is set, and names no setting of TLS that exists; expected",
        ),
        ({"KAFKA_AUTHORIZER_CLASS_NAME": "Acls"}, "authorizer.class.name is 'Acls', expected org.apache.kafka"),
        ({"KAFKA_CREATE_TOPICS": "orders:many:1"}, "ottla.topics.at.start is 'orders:many', expected a whole number"),
    ],
)
def test_what_would_not_be_kept_refuses_the_start(environment: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(environment)

    assert str(refused.value).startswith(sentence)


# Metrics


def test_the_metrics_port_of_a_container_can_be_published_and_is_one_that_nobody_has_given() -> None:
    for listeners in ("PLAINTEXT://:9092", "PLAINTEXT://:9404"):
        settings = load(
            {"KAFKA_LISTENERS": listeners, "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:1"}
        ).settings
        assert settings.ottla_prometheus_listener == ListenAddress("", 9404)
        assert "ottla.prometheus.listener" not in settings.given, "where it is taken, it moves"


def test_a_metrics_port_that_somebody_gives_to_a_container_is_the_one() -> None:
    given = load({"KAFKA_OTTLA_PROMETHEUS_LISTENER": "127.0.0.1:7000"})
    assert given.settings.ottla_prometheus_listener == ListenAddress("127.0.0.1", 7000)
    with pytest.raises(SettingsError, match=r"expected another port than that of PLAINTEXT://:9404"):
        load({"KAFKA_LISTENERS": "PLAINTEXT://:9404", "KAFKA_OTTLA_PROMETHEUS_LISTENER": ":9404"})
