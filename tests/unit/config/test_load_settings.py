"""From a file and the command line to one checked object: who wins, what is adopted, and every refusal."""

import re
import socket
from pathlib import Path

import pytest

from config.broker_settings import BROKER_SETTINGS, BrokerSettings
from config.errors import SettingsError
from config.listeners import Listener
from config.parse import LoadedSettings, load_settings
from config.quorum import ControllerAddress, controller_addresses

UPSTREAM_SERVER_PROPERTIES = """\
# The keys of the file that Apache Kafka ships for a single KRaft node
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def load(**texts: str) -> LoadedSettings:
    """Load settings given as on the command line; underscores stand for dots."""
    return load_keys({key.replace("_", "."): text for key, text in texts.items()})


def load_keys(texts: dict[str, str]) -> LoadedSettings:
    return load_settings(None, list(texts.items()), host_name=lambda: "box.example")


def listener(name: str, host: str, port: int) -> Listener:
    return Listener(name=name, host=host, port=port)


def test_without_file_and_overrides_the_defaults_hold() -> None:
    loaded = load_settings(None)

    assert loaded == LoadedSettings(BrokerSettings(), [])
    assert loaded.settings.listeners == (listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert loaded.settings.advertised_listeners == loaded.settings.listeners
    assert loaded.settings.log_dirs == ("./data",)


def test_kafkas_own_server_properties_is_accepted_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(UPSTREAM_SERVER_PROPERTIES)

    settings, notices = load_settings(str(path))

    assert settings.listeners == (listener("PLAINTEXT", "", 9092),)
    assert settings.advertised_listeners == (listener("PLAINTEXT", "localhost", 9092),)
    assert settings.controller_listeners == (listener("CONTROLLER", "", 9093),)
    assert settings.advertised_controller_listeners == (listener("CONTROLLER", "localhost", 9093),)
    assert settings.controller_port(client_port=9092) == 9093
    assert settings.socket_send_buffer_bytes == 102400
    assert notices == ["not asked, because this node is its own controller: controller.quorum.bootstrap.servers"]


def test_the_command_line_wins_over_the_file_and_of_two_overrides_the_later(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("num.partitions: 2\nnum.io.threads: 4\n")

    settings = load_settings(str(path), [("num.partitions", "3"), ("num.partitions", "5")]).settings

    assert (settings.num_partitions, settings.num_io_threads) == (5, 4)
    assert settings.given == {"num.partitions": "5", "num.io.threads": "4"}


def test_an_old_name_on_the_command_line_wins_over_the_new_one_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("node.id: 1\nlog.dirs: /a\n")

    settings = load_settings(str(path), [("broker.id", "2"), ("log.dir", "/b")]).settings

    assert (settings.node_id, settings.log_dirs) == (2, ("/b",))


def test_log_dirs_wins_over_log_dir_in_one_file() -> None:
    assert load(log_dir="/a", log_dirs="/b,/c").settings.log_dirs == ("/b", "/c")


def test_node_id_and_broker_id_may_both_stand_there_if_they_agree() -> None:
    assert load(node_id="0", broker_id="0").settings.node_id == 0
    assert load(node_id="4", broker_id="-1").settings.node_id == 4


@pytest.mark.parametrize(
    ("texts", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
    ],
)
def test_retention_in_milliseconds_wins_over_minutes_and_minutes_over_hours(
    texts: dict[str, str], retention_ms: int
) -> None:
    assert load_keys(texts).settings.log_defaults().retention_ms == retention_ms


def test_roll_times_and_flushes_follow_the_most_specific_setting() -> None:
    hours = load(log_roll_hours="2", log_roll_jitter_hours="1", log_flush_scheduler_interval_ms="7")
    ms = load(
        log_roll_hours="2",
        log_roll_ms="5",
        log_roll_jitter_hours="1",
        log_roll_jitter_ms="4",
        log_flush_interval_ms="3",
    )

    assert (hours.settings.log_defaults().segment_ms, hours.settings.log_defaults().segment_jitter_ms) == (
        7_200_000,
        3_600_000,
    )
    assert hours.settings.log_defaults().flush_ms == 7
    assert (ms.settings.log_defaults().segment_ms, ms.settings.log_defaults().segment_jitter_ms) == (5, 4)
    assert ms.settings.log_defaults().flush_ms == 3


def test_broker_settings_reach_the_topics_defaults() -> None:
    log = load(
        log_cleanup_policy="compact, delete", message_max_bytes="5", min_insync_replicas="2"
    ).settings.log_defaults()

    assert log.cleanup_policy == {"compact", "delete"}
    assert (log.max_message_bytes, log.min_insync_replicas) == (5, 2)


def test_several_listeners_have_names_of_their_own() -> None:
    settings = load(
        listeners="internal://10.0.0.1:9092, EXTERNAL://[::1]:9094",
        listener_security_protocol_map="INTERNAL:PLAINTEXT,external:plaintext",
        advertised_listeners="EXTERNAL://broker.example:443",
    ).settings

    assert settings.listeners == (listener("INTERNAL", "10.0.0.1", 9092), listener("EXTERNAL", "::1", 9094))
    assert settings.advertised_listeners == (listener("EXTERNAL", "broker.example", 443),)
    assert str(settings.listeners[1]) == "EXTERNAL://[::1]:9094"


def test_a_controller_is_found_where_it_is_advertised_or_else_where_it_is_opened() -> None:
    settings, _ = load(
        listeners="PLAINTEXT://:9092,ONE://:9093,TWO://0.0.0.0:9094,THREE://10.0.0.1:9095",
        controller_listener_names="ONE,TWO,THREE",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,ONE:PLAINTEXT,TWO:PLAINTEXT,THREE:PLAINTEXT",
        advertised_listeners="PLAINTEXT://a.example:9092,ONE://a.example:19093",
    )

    found = [f"{one.name}://{one.host}:{one.port}" for one in settings.advertised_controller_listeners]
    assert found == ["ONE://a.example:19093", "TWO://box.example:9094", "THREE://10.0.0.1:9095"]


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "[0:0:0:0:0:0:0:0]", "[::ffff:0.0.0.0]"])
def test_a_listener_on_every_interface_is_advertised_by_this_machines_name(host: str) -> None:
    settings, notices = load(listeners=f"PLAINTEXT://{host}:9092")

    assert settings.listeners[0].binds_every_interface
    assert settings.advertised_listeners == (listener("PLAINTEXT", "box.example", 9092),)
    assert notices == [
        "the advertised address is PLAINTEXT://box.example:9092, this machine's name; "
        "set advertised.listeners if clients reach it by another name"
    ]


@pytest.mark.parametrize("name", ["", OSError("no name"), UnicodeError("label too long")])
def test_a_machine_without_a_name_is_advertised_as_localhost(
    monkeypatch: pytest.MonkeyPatch, name: str | Exception
) -> None:
    def getfqdn() -> str:
        if isinstance(name, Exception):
            raise name
        return name

    monkeypatch.setattr(socket, "getfqdn", getfqdn)
    settings = load_settings(None, [("listeners", "PLAINTEXT://:9092")]).settings
    assert settings.advertised_listeners[0].host == "localhost"


def test_port_0_is_advertised_as_the_port_that_was_bound() -> None:
    settings = load(
        listeners="PLAINTEXT://127.0.0.1:0,SIDE://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SIDE:PLAINTEXT",
    ).settings

    advertised = settings.advertised_on({"PLAINTEXT": 40001, "SIDE": 40002})

    assert [one.port for one in advertised] == [40001, 40002]


def test_a_controller_listener_needs_no_protocol_of_its_own_under_the_default_map() -> None:
    settings = load(controller_listener_names="CTL", listeners="PLAINTEXT://h:9092,CTL://h:9093").settings

    assert settings.controller_listeners == (listener("CTL", "h", 9093),)


def test_a_secured_controller_listener_is_kept_with_its_settings_since_nobody_opens_it() -> None:
    settings, notices = load_keys(
        {
            "controller.listener.names": "CTL",
            "listeners": "PLAINTEXT://h:9092,CTL://h:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CTL:SASL_SSL",
            "listener.name.ctl.plain.sasl.jaas.config": "secret",
        }
    )

    assert settings.controller_listeners[0].security_protocol == "SASL_SSL"
    assert notices == [
        "kept but not opened, because brokers talk to each other without TLS and SASL here: CTL://h:9093",
        "accepted without effect here: listener.name.ctl.plain.sasl.jaas.config",
    ]


def test_the_controllers_port_is_settable_and_else_stands_beside_the_clients() -> None:
    assert load().settings.controller_port(9092) == 9093
    assert load().settings.controller_port(65535) == 65534
    assert load(ottla_controller_port="7000").settings.controller_port(9092) == 7000


def test_limits_of_one_listener_stand_under_its_prefix() -> None:
    settings = load_keys(
        {
            "max.connections": "9",
            "listener.name.plaintext.max.connections": "5",
            "listener.name.plaintext.max.connection.creation.rate": "3",
        }
    ).settings

    assert (settings.listeners[0].max_connections, settings.listeners[0].max_connection_creation_rate) == (5, 3)
    assert settings.max_connections == 9


def test_another_setting_under_a_listeners_prefix_is_accepted_without_effect() -> None:
    assert load_keys({"listener.name.plaintext.num.network.threads": "5"}).notices == [
        "accepted without effect here: listener.name.plaintext.num.network.threads"
    ]


def test_replication_that_one_node_cannot_have_is_lowered_with_one_notice() -> None:
    settings, notices = load(
        default_replication_factor="3",
        offsets_topic_replication_factor="3",
        transaction_state_log_min_isr="2",
        min_insync_replicas="2",
    )

    assert settings.default_replication_factor == settings.offsets_topic_replication_factor == 1
    assert settings.transaction_state_log_min_isr == 1
    assert settings.min_insync_replicas == 2
    assert notices == [
        "taken as 1, because there is one node: default.replication.factor=3, offsets.topic.replication.factor=3, "
        "transaction.state.log.min.isr=2"
    ]


def test_settings_of_kafka_that_do_nothing_here_are_named_together_in_one_notice() -> None:
    assert load(background_threads="2", super_users="User:a").notices == [
        "accepted without effect here: background.threads, super.users"
    ]


def test_security_settings_pass_if_they_say_nothing_or_kafkas_default() -> None:
    assert load(ssl_client_auth="none", sasl_enabled_mechanisms="GSSAPI", ssl_keystore_location="").settings.given


def test_the_bound_of_held_requests_follows_the_largest_request_unless_it_is_set() -> None:
    assert load().settings.queued_max_request_bytes == 268_435_456
    assert load(socket_request_max_bytes="2000000000").settings.queued_max_request_bytes == 2_000_000_000
    assert load(queued_max_request_bytes="-1").settings.queued_max_request_bytes == -1


def test_other_limits_for_single_addresses_are_read() -> None:
    settings = load(max_connections_per_ip="0", max_connections_per_ip_overrides="10.0.0.7:100, localhost:2").settings

    assert settings.max_connections_by_ip == {"10.0.0.7": 100, "localhost": 2}


def test_the_inter_broker_listener_is_plaintext_unless_it_is_named() -> None:
    assert load().settings.inter_broker_listener == "PLAINTEXT"
    named = load(inter_broker_listener_name="plaintext").settings
    assert named.inter_broker_listener == "PLAINTEXT"


def test_every_default_is_among_the_values_allowed() -> None:
    for key, declaration in BROKER_SETTINGS.items():
        if declaration.default is not None:
            declaration.parse(key, declaration.default)


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("num.io.threads", "22:22", "num.io.threads is '22:22', expected a whole number from 1 to 2147483647"),
        ("num.io.threads", "0", "num.io.threads is '0', expected a whole number from 1 to 2147483647"),
        ("node.id", "-1", "node.id is '-1', expected a whole number from 0 to 2147483647"),
        ("auto.create.topics.enable", "on", "auto.create.topics.enable is 'on', expected true or false"),
        ("ottla.records.validation", "all", "ottla.records.validation is 'all', expected one of headers, full"),
        ("num.replica.fetchers", "0", "num.replica.fetchers is '0', expected a whole number from 1 to 2147483647"),
        (
            "num.partition",
            "3",
            "num.partition is not the name of a setting (its value is '3'); did you mean num.partitions?",
        ),
        (
            "retention.ms",
            "3",
            "retention.ms is a setting of single topics and says nothing of a broker, expected log.retention.ms, their "
            "default",
        ),
        ("qwertz", "3", "qwertz is not the name of a setting (its value is '3')"),
        (
            "ottla.connections.max.in.flight",
            "3",
            "ottla.connections.max.in.flight is not the name of a setting (its value is '3'); "
            "did you mean ottla.connection.max.in.flight?",
        ),
        (
            "ssl.keystore.pasword",
            "geheim",
            "ssl.keystore.pasword is not the name of a setting (its value is '(hidden)'); did you mean "
            "ssl.keystore.password?",
        ),
        (
            "listener.name.plaintext.max.conections",
            "3",
            "listener.name.plaintext.max.conections is not the name of a setting (its value is '3'); "
            "did you mean listener.name.plaintext.max.connections?",
        ),
        (
            "listener.name.plaintxt.max.connections",
            "3",
            "listener.name.plaintxt.max.connections is not the name of a setting (its value is '3'); "
            "did you mean listener.name.plaintext.max.connections?",
        ),
        (
            "listener.name.plaintext.max.connections",
            "-1",
            "listener.name.plaintext.max.connections is '-1', expected a whole number from 0 to 2147483647",
        ),
        (
            "security.inter.broker.protocol",
            "SASL_PLAINTEXT",
            "security.inter.broker.protocol is 'SASL_PLAINTEXT', but brokers talk to each other without TLS and SASL "
            "here: leave it out",
        ),
        (
            "listeners",
            "SSL://:9093",
            "the listener SSL has TLS, expected its key and certificate in ssl.keystore.location (with "
            "ssl.keystore.type PEM or PKCS12), or in ssl.keystore.key and ssl.keystore.certificate.chain",
        ),
        (
            "authorizer.class.name",
            "x.Y",
            "authorizer.class.name is 'x.Y', expected org.apache.kafka.metadata.authorizer.StandardAuthorizer, or "
            "nothing",
        ),
        (
            "client.quota.callback.class",
            "x.Y",
            "client.quota.callback.class is 'x.Y', but this broker cannot load classes of Java, and this one would "
            "decide which quota a client has: leave it out",
        ),
        (
            "config.providers",
            "file",
            "config.providers is 'file', but values are not looked up elsewhere: write them into the file or "
            "give them with -o",
        ),
        (
            "remote.log.storage.system.enable",
            "true",
            "remote.log.storage.system.enable is 'true', but there is no tiered storage here, and what lies in "
            "it could not "
            "be read",
        ),
        (
            "process.roles",
            "controller",
            "process.roles is 'controller', expected broker among them: this process is always a broker",
        ),
        (
            "zookeeper.connect",
            "zk:2181",
            "zookeeper.connect no longer exists: Kafka 4.0 removed it: leave it out, metadata lives in the data "
            "directory",
        ),
        (
            "listeners",
            "PLAINTEXT://localhost",
            "listeners is 'PLAINTEXT://localhost', expected name://host:port with a port from 0 to 65535, such as "
            "PLAINTEXT://:9092",
        ),
        (
            "listeners",
            "PLAINTEXT://:65536",
            "listeners is 'PLAINTEXT://:65536', expected name://host:port with a port from 0 to 65535, such as "
            "PLAINTEXT://:9092",
        ),
        (
            "listeners",
            "CLIENTS://:9092",
            "listeners is 'CLIENTS://:9092', expected a listener named in listener.security.protocol.map, which knows "
            "PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL",
        ),
        (
            "listeners",
            "PLAINTEXT://:1,PLAINTEXT://:2",
            "listeners is 'PLAINTEXT://:1,PLAINTEXT://:2', expected each listener once, but PLAINTEXT stands "
            "there 2 times",
        ),
        ("listeners", "", "listeners is '', expected one that is not named in controller.listener.names, for clients"),
        (
            "listener.security.protocol.map",
            "PLAINTEXT:TLS",
            "listener.security.protocol.map is 'PLAINTEXT:TLS', expected name:protocol with one of the "
            "protocols PLAINTEXT, "
            "SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            "listener.security.protocol.map",
            "A:SSL,a:SSL",
            "listener.security.protocol.map is 'A:SSL,a:SSL', expected each listener once, but A stands there twice",
        ),
        (
            "advertised.listeners",
            "PLAINTEXT://0.0.0.0:9092",
            "advertised.listeners has PLAINTEXT://0.0.0.0:9092, expected an address that clients can connect "
            "to: 0.0.0.0 "
            "only means every interface of this machine",
        ),
        (
            "advertised.listeners",
            "SSL://h:9092",
            "advertised.listeners has SSL://h:9092, expected a name that listeners has: PLAINTEXT",
        ),
        (
            "log.dirs",
            "/a,,/b",
            "log.dirs is '/a,,/b', expected a comma-separated list without empty entries",
        ),
        ("log.dirs", "", "log.dirs is '', expected a comma-separated list of directories without empty entries"),
        ("log.dirs", "/a,/a/", "log.dirs is '/a,/a/', expected each directory once"),
        (
            "log.dirs",
            "/a/./b/c-0,/a/b",
            "log.dirs is '/a/./b/c-0,/a/b', expected no directory inside another: /a/./b/c-0 is inside /a/b",
        ),
        ("log.dirs", "a,a/b", "log.dirs is 'a,a/b', expected no directory inside another: a/b is inside a"),
        ("log.retention.ms", "0", "log.retention.ms is '0', expected a whole number of at least 1, or -1 for no limit"),
        ("log.roll.ms", "0", "log.roll.ms is '0', expected a whole number of at least 1"),
        ("log.roll.jitter.ms", "-1", "log.roll.jitter.ms is '-1', expected a whole number of at least 0"),
        (
            "queued.max.request.bytes",
            "1000",
            "queued.max.request.bytes is '1000', expected at least socket.request.max.bytes, which is "
            "104857600, or -1 for no "
            "limit",
        ),
        ("default.replication.factor", "0", "default.replication.factor is '0', expected 1"),
        (
            "socket.send.buffer.bytes",
            "0",
            "socket.send.buffer.bytes is '0', expected a whole number of at least 1, or -1 for the system's own tuning",
        ),
        (
            "inter.broker.listener.name",
            "REPLICATION",
            "inter.broker.listener.name is 'REPLICATION', expected one of the names that listeners has: PLAINTEXT",
        ),
        (
            "max.connections.per.ip",
            "0",
            "max.connections.per.ip is '0', expected at least 1, unless max.connections.per.ip.overrides names "
            "who may connect",
        ),
        (
            "max.connections",
            "0",
            "max.connections is '0', expected at least 1: no client could connect",
        ),
        (
            "listener.name.plaintext.max.connections",
            "0",
            "listener.name.plaintext.max.connections is '0', expected at least 1: no client could connect to any "
            "listener",
        ),
        (
            "connections.max.idle.ms",
            "100",
            "connections.max.idle.ms is '100', expected more than connection.failed.authentication.delay.ms, which is "
            "100, or -1 for no limit",
        ),
        (
            "offsets.topic.segment.bytes",
            "1048575",
            "offsets.topic.segment.bytes is '1048575', expected a whole number of at least 1048576, as for any topic",
        ),
        (
            "transaction.state.log.segment.bytes",
            "1",
            "transaction.state.log.segment.bytes is '1', expected a whole number of at least 1048576, as for any topic",
        ),
        (
            "max.connections.per.ip.overrides",
            "localhost",
            "max.connections.per.ip.overrides is 'localhost', expected host:limit entries with whole numbers, such as "
            "10.0.0.7:100,localhost:200",
        ),
        (
            "replica.selector.class",
            "com.example.NearestReplica",
            "replica.selector.class is 'com.example.NearestReplica', expected "
            "org.apache.kafka.common.replica.RackAwareReplicaSelector or "
            "org.apache.kafka.common.replica.LeaderSelector: this broker cannot load classes of Java",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_in_one_sentence(key: str, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_keys({key: text})

    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    "key", ["num.io.threads", "connections.max.idle.ms", "max.connections.per.ip.overrides", "listeners"]
)
def test_a_number_of_thousands_of_digits_is_refused_as_any_other_that_is_too_large(key: str) -> None:
    form = {"max.connections.per.ip.overrides": "localhost:{}", "listeners": "PLAINTEXT://:{}"}.get(key, "{}")

    with pytest.raises(SettingsError, match=rf"{key} is '.*9999', expected "):
        load_keys({key: form.format("9" * 5_000)})


@pytest.mark.parametrize("idle_ms", ["0", "1", "100"])
def test_a_connection_must_stay_open_for_as_long_as_kafka_demands(idle_ms: str) -> None:
    with pytest.raises(SettingsError, match=f"connections.max.idle.ms is '{idle_ms}', expected more than"):
        load(connections_max_idle_ms=idle_ms)

    delay = {"connection.failed.authentication.delay.ms": "200"}
    assert load(connections_max_idle_ms="101").settings.connections_max_idle_ms == 101
    assert load(connections_max_idle_ms="-1").settings.connections_max_idle_ms == -1
    assert load_keys({"connections.max.idle.ms": "201", **delay}).settings.connections_max_idle_ms == 201
    with pytest.raises(SettingsError, match=r"delay.ms, which is 200, or -1 for no limit"):
        load_keys({"connections.max.idle.ms": "200", **delay})


def test_what_a_file_lists_twice_counts_once_as_in_kafka() -> None:
    settings = load_keys(
        {
            "log.dirs": "/a, /b,/a",
            "log.cleanup.policy": "delete,delete",
            "listeners": "PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9092",
            "advertised.listeners": "PLAINTEXT://h:1, PLAINTEXT://h:1",
        }
    ).settings

    assert settings.log_dirs == ("/a", "/b")
    assert settings.log_cleanup_policy == ("delete",)
    assert settings.listeners == (listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert settings.advertised_listeners == (listener("PLAINTEXT", "h", 1),)


def test_no_connections_in_all_leave_those_of_the_inter_broker_listener() -> None:
    listeners = {
        "listeners": "PLAINTEXT://:9092,B://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
        "max.connections": "0",
    }

    assert load_keys(listeners).settings.max_connections == 0
    with pytest.raises(SettingsError, match=r"max.connections is '0', expected at least 1"):
        load_keys({**listeners, "listener.name.plaintext.max.connections": "0"})


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (
            {"node.id": "1", "broker.id": "2"},
            "node.id is '1' and broker.id is '2', expected one of them, or both the same",
        ),
        (
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            "log.cleaner.min.compaction.lag.ms is '9', expected at most log.cleaner.max.compaction.lag.ms, which is 8",
        ),
        (
            {"group.consumer.assignors": "uniform,mine"},
            "group.consumer.assignors is 'mine', expected uniform, range, or both",
        ),
        (
            {"group.consumer.session.timeout.ms": "5000"},
            "group.consumer.session.timeout.ms is '5000', expected between group.consumer.min.session.timeout.ms, "
            "which is 45000, and group.consumer.max.session.timeout.ms, which is 60000",
        ),
        (
            {"group.share.delivery.count.limit": "3", "group.share.min.delivery.count.limit": "4"},
            "group.share.delivery.count.limit is '3', expected between group.share.min.delivery.count.limit, which is "
            "4, and group.share.max.delivery.count.limit, which is 10",
        ),
        (
            {"group.consumer.min.heartbeat.interval.ms": "20000"},
            "group.consumer.max.heartbeat.interval.ms is '15000', expected at least "
            "group.consumer.min.heartbeat.interval.ms, which is 20000",
        ),
        (
            {"group.min.session.timeout.ms": "2000000"},
            "group.min.session.timeout.ms is '2000000', expected at most group.max.session.timeout.ms, which is "
            "1800000",
        ),
        (
            {"offsets.topic.compression.codec": "5"},
            "offsets.topic.compression.codec is '5', expected 0 for none, 1 for gzip, 2 for snappy, 3 for lz4 or "
            "4 for zstd",
        ),
        (
            {
                "listeners": "PLAINTEXT://:9092,B://:9092",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            "listeners has both PLAINTEXT://:9092 and B://:9092, expected a port of its own for each (only an "
            "IPv4 and an "
            "IPv6 address may share one)",
        ),
        (
            {"listeners": "PLAINTEXT://:9092", "ottla.prometheus.listener": "127.0.0.1:9092"},
            "ottla.prometheus.listener is '127.0.0.1:9092', expected another port than that of PLAINTEXT://:9092",
        ),
        (
            {"log.dirs": "/a", "metadata.log.dir": "/a/m"},
            "metadata.log.dir is '/a/m', expected no directory inside another: /a/m is inside /a",
        ),
        (
            {"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"},
            "listeners is 'CONTROLLER://:9093', expected one that is not named in controller.listener.names, "
            "for clients",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_in_one_sentence(texts: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_keys(texts)

    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("one", "other"), [("", "[::1]"), ("0.0.0.0", "[::]"), ("127.0.0.1", "[::]"), ("[::1]", "0.0.0.0")]
)
def test_every_interface_is_of_both_families_and_shares_its_port_with_no_other_listener(one: str, other: str) -> None:
    with pytest.raises(SettingsError, match="expected a port of its own for each"):
        load(
            listeners=f"PLAINTEXT://{one}:9092,B://{other}:9092",
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
        )


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "[0:0:0:0:0:0:0:0]"])
def test_every_interface_is_no_address_to_advertise(host: str) -> None:
    with pytest.raises(SettingsError, match="expected an address that clients can connect to"):
        load(advertised_listeners=f"PLAINTEXT://{host}:9092")


def test_an_ipv4_and_an_ipv6_listener_may_share_a_port() -> None:
    settings = load(
        listeners="PLAINTEXT://127.0.0.1:9092,B://[::1]:9092",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
    ).settings

    assert len(settings.listeners) == 2


def test_a_secret_is_not_repeated_in_a_refusal() -> None:
    with pytest.raises(SettingsError) as refused:
        load_keys({"listener.name.nowhere.ssl.keystore.password": "geheim"})

    assert "geheim" not in str(refused.value)


# Members of a cluster


def test_a_member_names_controllers_and_has_kafkas_replication() -> None:
    settings, notices = load(process_roles="broker", controller_quorum_bootstrap_servers="[::1]:9093, c.example:19093")

    assert settings.is_member
    assert controller_addresses(settings) == (
        ControllerAddress(None, "::1", 9093),
        ControllerAddress(None, "c.example", 19093),
    )
    assert settings.offsets_topic_replication_factor == 3
    assert settings.transaction_state_log_replication_factor == 3
    assert settings.transaction_state_log_min_isr == 2
    assert notices == []


def test_a_member_of_a_fixed_quorum_finds_the_controllers_by_the_voters() -> None:
    settings, _ = load(
        process_roles="broker", controller_quorum_voters="100@a:9093,101@b:9093", default_replication_factor="2"
    )

    assert controller_addresses(settings) == (ControllerAddress(100, "a", 9093), ControllerAddress(101, "b", 9093))
    assert settings.default_replication_factor == 2


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({}, "process.roles is 'broker', expected controller.quorum.bootstrap.servers with the addresses"),
        ({"controller_quorum_bootstrap_servers": "a"}, "is 'a', expected host:port with a port from 1 to 65535"),
        ({"controller_quorum_bootstrap_servers": "a:0"}, "is 'a:0', expected host:port with a port from 1 to 65535"),
        ({"controller_quorum_voters": "a:9093"}, "is 'a:9093', expected id@host:port"),
        (
            {"controller_quorum_bootstrap_servers": "a:1", "ottla_topics_at_start": "orders"},
            "is 'orders', expected nothing where process.roles is broker",
        ),
        (
            {
                "controller_quorum_bootstrap_servers": "a:1",
                "controller_listener_names": "CTL",
                "listeners": "PLAINTEXT://:9092,CTL://:9093",
            },
            "expected none that controller.listener.names has",
        ),
    ],
)
def test_a_member_that_could_not_join_is_refused(texts: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        load(process_roles="broker", **texts)


def test_consumers_read_from_leaders_unless_a_selector_is_named_that_goes_by_racks() -> None:
    package = "org.apache.kafka.common.replica"
    named = [
        load(replica_selector_class=f"{package}.{name}") for name in ("LeaderSelector", "RackAwareReplicaSelector")
    ]

    assert [one.settings.chooses_replicas_by_rack for one in (load(), *named)] == [False, False, True]


def test_a_node_that_opens_its_controller_listener_has_the_replicas_that_it_asks_for() -> None:
    settings, _ = load(
        controller_listener_names="CTL",
        listeners="PLAINTEXT://h:9092,CTL://h:9093",
        offsets_topic_replication_factor="2",
    )

    assert settings.offsets_topic_replication_factor == 2
