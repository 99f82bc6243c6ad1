"""`ottla cluster check`: each rule on what a cluster may say, and the command against a controller that runs."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from broker.metadata.registration import SUPPORTED_FEATURES
from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.tools.cluster import main
from broker.tools.cluster_survey import AskedController, ClusterSurvey, LeadersAnswers, survey_cluster
from broker.tools.join_check import JoiningNode, Verdict, check_join
from config.listeners import Listener
from protocol.api_keys import ApiKey
from protocol.records.cluster_metadata import FeatureLevelRecord, RegisterBrokerRecord
from storage.checkpoints import MetaProperties
from tests.support.broker import WITH_CONTROLLER_LISTENER, InProcessBroker, running_broker
from tests.support.metadata import image_of

CLUSTER: Final = "b3R0bGEtdGVzdC1jbHVzdA"
OURS, THEIRS = bytes(range(100, 116)), bytes(range(50, 66))
CONTROLLERS: Final = (PeerEndpoint(100, "c1.example", 9093), PeerEndpoint(101, "c2.example", 9093))
ASKED: Final = PeerEndpoint(UNKNOWN_ID, "c1.example", 9093)


def registered(broker_id: int, directory_id: bytes, *, fenced: bool = True, name: str = "PLAINTEXT") -> Any:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=bytes(16),
        broker_epoch=1,
        end_points=[
            RegisterBrokerRecord.EndPoint(name=name, host=f"b{broker_id}.example", port=9092, security_protocol=0)
        ],
        features=[],
        rack=None,
        fenced=fenced,
        log_dirs=[directory_id],
    )


ANSWERS: Final = LeadersAnswers(
    epoch=7,
    high_watermark=10,
    voters=frozenset((100, 101)),
    clock_ahead_ms=3,
    clock_doubt_ms=2,
    apis=dict.fromkeys(ApiKey, (0, 99)),
    finalized_features={"metadata.version": 25, "kraft.version": 1, "transaction.version": 2, "group.version": 0},
)
SURVEY: Final = ClusterSurvey(
    asked=(
        AskedController(ASKED, "", CLUSTER, 101, CONTROLLERS),
        AskedController(CONTROLLERS[1], "", CLUSTER, 101, CONTROLLERS),
    ),
    leader=CONTROLLERS[1],
    answers=ANSWERS,
    image=image_of(FeatureLevelRecord(name="metadata.version", feature_level=25), registered(5, THEIRS, fenced=False)),
)
NODE: Final = JoiningNode(
    node_id=1,
    advertised=(Listener("PLAINTEXT", "b1.example", 9092),),
    inter_broker_listener="PLAINTEXT",
    directories={"/data": MetaProperties(CLUSTER, 1, OURS), "/data2": None},
)


def with_brokers(*brokers: RegisterBrokerRecord) -> ClusterSurvey:
    return replace(SURVEY, image=image_of(*brokers))


def with_features(**levels: int) -> ClusterSurvey:
    finalized = {**ANSWERS.finalized_features, **{name.replace("_", "."): level for name, level in levels.items()}}
    return replace(SURVEY, answers=replace(ANSWERS, finalized_features=finalized))


def with_answers(**fields: Any) -> ClusterSurvey:
    return replace(SURVEY, answers=replace(ANSWERS, **fields))


def troubles(node: JoiningNode = NODE, survey: ClusterSurvey = SURVEY) -> list[Verdict]:
    return [verdict for verdict in check_join(node, survey) if verdict.kind != "ok"]


def the_trouble(node: JoiningNode = NODE, survey: ClusterSurvey = SURVEY) -> Verdict:
    (verdict,) = troubles(node, survey)
    return verdict


# Rules ----------------------------------------------------------------------------------------------------------------


def test_a_node_that_fits_hears_why() -> None:
    verdicts = list(check_join(NODE, SURVEY))

    assert {verdict.kind for verdict in verdicts} == {"ok"}
    assert [verdict.found for verdict in verdicts] == [
        "the node at c1.example:9093 answers",
        "node 101 at c2.example:9093 answers",
        "node 101 at c2.example:9093 leads, in epoch 7",
        f"/data belongs to cluster {CLUSTER}, as the controllers do",
        "this broker supports all that is finalised: kraft.version 1, metadata.version 25, transaction.version 2",
        "1 is free",
        "PLAINTEXT://b1.example:9092 is advertised",
        "the clock of node 101 at c2.example:9093 agrees to 5 ms",
    ]


def test_a_new_node_belongs_to_no_cluster_yet() -> None:
    node = NODE._replace(directories={"/data": None})

    assert troubles(node) == []
    assert any("all data directories are new" in verdict.found for verdict in check_join(node, SURVEY))


def test_a_directory_of_another_cluster_or_node_cannot_join() -> None:
    found = the_trouble(NODE._replace(directories={"/data": MetaProperties("another", 1, OURS)}))
    assert (found.kind, found.about) == ("fault", "cluster")
    assert found.found == f"/data belongs to cluster another, and the controllers to {CLUSTER}"
    assert "`ottla cluster handover`" in found.remedy

    found = the_trouble(NODE._replace(directories={"/data": MetaProperties(CLUSTER, 2, OURS)}))
    assert (found.kind, found.about, found.remedy) == ("fault", "directory", "node.id=2")


def test_controllers_of_several_clusters_are_named() -> None:
    other = AskedController(PeerEndpoint(UNKNOWN_ID, "d.example", 9093), "", "another", 9)

    found = the_trouble(survey=replace(SURVEY, asked=(*SURVEY.asked, other)))

    assert found.kind == "fault"
    assert "node at d.example:9093 of another" in found.found


def test_a_controller_that_cannot_be_reached_is_a_warning_while_another_leads() -> None:
    gone = AskedController(CONTROLLERS[0], "node 100 at c1.example:9093 cannot be reached: refused")

    found = the_trouble(survey=replace(SURVEY, asked=(*SURVEY.asked, gone)))

    assert (found.kind, found.about) == ("warning", "controllers")
    assert found.found == gone.problem


def test_without_a_leader_nobody_joins() -> None:
    asked = (AskedController(ASKED, "", CLUSTER, -1, CONTROLLERS),)

    found = the_trouble(survey=ClusterSurvey(asked=asked))

    assert (found.kind, found.found) == ("fault", "the controllers have no leader")


def test_a_leader_that_cannot_be_reached_at_its_own_address_is_a_fault() -> None:
    survey = replace(SURVEY, answers=None, image=None, problems=("node 101 at c2.example:9093 cannot be reached",))

    found = the_trouble(survey=survey)

    assert (found.kind, found.about) == ("fault", "leader")
    assert found.found == "node 101 at c2.example:9093 cannot be reached"


def test_levels_that_are_too_high_come_with_the_command_that_lowers_them() -> None:
    first, second, command = troubles(survey=with_features(share_version=3, unheard_version=1))

    assert first.found == "the cluster has finalised share.version at 3, this broker supports 0 to 2"
    assert second.found == "the cluster has finalised unheard.version at 1, which this broker does not know"
    assert command.remedy == (
        "kafka-features.sh --bootstrap-controller c2.example:9093 downgrade --feature share.version=2 "
        "--feature unheard.version=0"
    )
    *_, command = troubles(survey=with_features(transaction_version=SUPPORTED_FEATURES["transaction.version"][1] + 1))
    assert command.remedy.endswith(" downgrade --feature transaction.version=2")


def test_levels_that_kafka_does_not_lower_take_another_version() -> None:
    found = the_trouble(survey=with_features(metadata_version=SUPPORTED_FEATURES["metadata.version"][1] + 1))
    assert "it takes a newer Ottla" in found.remedy

    found = the_trouble(survey=with_features(metadata_version=6))
    assert found.remedy.endswith(" upgrade --feature metadata.version=7")


def test_controllers_that_do_not_know_our_requests_are_named() -> None:
    apis = {key: versions for key, versions in ANSWERS.apis.items() if key != ApiKey.BROKER_HEARTBEAT}

    found = the_trouble(survey=with_answers(apis=apis))

    assert found.kind == "fault"
    assert "knows no version of BrokerHeartbeat" in found.found
    found = the_trouble(survey=with_answers(apis={**ANSWERS.apis, ApiKey.BROKER_REGISTRATION: (9, 10)}))
    assert "knows versions 9 to 10 of BrokerRegistration" in found.found


@pytest.mark.parametrize("survey", [SURVEY, with_answers(voters=frozenset((1, 100)))])
def test_the_id_of_a_controller_is_no_brokers(survey: ClusterSurvey) -> None:
    node_id = 100 if survey is SURVEY else 1
    node = NODE._replace(node_id=node_id, directories={"/data": None})

    found = the_trouble(node, survey)

    assert (found.kind, found.about) == ("fault", "node.id")
    assert f"{node_id} is a controller's id" in found.found


def test_an_id_that_another_directory_has_registered_is_not_free() -> None:
    found = the_trouble(survey=with_brokers(registered(1, THEIRS)))

    assert found.kind == "fault"
    assert found.found == "1 is registered by a broker at b1.example:9092 with other data directories"
    assert found.remedy.endswith("kafka-cluster.sh unregister --bootstrap-controller c2.example:9093 --id 1")


def test_the_same_directory_may_come_back() -> None:
    survey = with_brokers(registered(1, OURS))
    assert troubles(survey=survey) == []
    assert any("registered by this data directory" in verdict.found for verdict in check_join(NODE, survey))

    found = the_trouble(survey=with_brokers(registered(1, OURS, fenced=False)))
    assert (found.kind, found.about) == ("warning", "node.id")


def test_a_copy_of_another_brokers_directory_cannot_join() -> None:
    found = the_trouble(survey=with_brokers(registered(5, OURS)))

    assert (found.kind, found.about) == ("fault", "directory")
    assert found.found == "broker 5 is registered with a data directory of this node"


def test_metadata_that_cannot_be_read_leaves_a_doubt() -> None:
    found = the_trouble(survey=replace(SURVEY, image=None, problems=("it is not given",)))

    assert (found.kind, found.found) == ("warning", "whether 1 is free is not known: it is not given")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_a_loopback_address_is_no_use_where_the_controllers_are_elsewhere(host: str) -> None:
    node = NODE._replace(advertised=(Listener("PLAINTEXT", host, 9092),))

    found = the_trouble(node)
    assert (found.kind, found.about) == ("fault", "listeners")
    assert found.remedy == "advertised.listeners=PLAINTEXT://<address of this machine>:9092"

    here = (PeerEndpoint(100, "127.0.0.1", 9093),)
    local = replace(SURVEY, asked=(AskedController(here[0], "", CLUSTER, 100, here),), leader=here[0])
    assert troubles(node, local) == []


@pytest.mark.parametrize(
    ("listener", "kind", "found"),
    [
        (Listener("PLAINTEXT", "c1.example", 9093), "fault", "which is the address of controller 100"),
        (Listener("PLAINTEXT", "b5.example", 9092), "fault", "which is the address of broker 5"),
        (Listener("PLAINTEXT", "b1.example", 0), "warning", "has port 0"),
    ],
)
def test_an_address_must_be_this_nodes_own_and_stay(listener: Listener, kind: str, found: str) -> None:
    verdict = the_trouble(NODE._replace(advertised=(listener,)))

    assert (verdict.kind, verdict.about) == (kind, "ports")
    assert found in verdict.found


def test_brokers_must_have_the_listener_on_which_they_talk() -> None:
    found = the_trouble(survey=with_brokers(registered(5, THEIRS, name="INTERNAL")))

    assert found.found == "brokers talk to each other on the listener PLAINTEXT, which brokers 5 do not have"


@pytest.mark.parametrize(("ahead_ms", "word"), [(60_000, "60000 ms ahead"), (-5_000, "5000 ms behind")])
def test_clocks_that_differ_are_a_warning(ahead_ms: int, word: str) -> None:
    found = the_trouble(survey=with_answers(clock_ahead_ms=ahead_ms))
    assert (found.kind, found.about) == ("warning", "clock")
    assert word in found.found

    # An answer that took long says little about the time.
    assert troubles(survey=with_answers(clock_ahead_ms=ahead_ms, clock_doubt_ms=abs(ahead_ms))) == []


# A controller that runs -----------------------------------------------------------------------------------------------


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[InProcessBroker]:
    with running_broker(tmp_path / "controller", **WITH_CONTROLLER_LISTENER, node_id=100) as broker:
        broker.create_topic("orders")
        yield broker


def port_of(controller: InProcessBroker) -> int:
    return controller.server.socket_server.controller_listeners[0].port


def check(controller: InProcessBroker, *words: str) -> int:
    """Run the command while the controller runs in this process, too."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(["check", *words])))
    thread.start()
    controller.wait_until(lambda: not thread.is_alive())
    return codes[0]


def test_a_controller_tells_its_cluster_its_metadata_and_its_time(controller: InProcessBroker) -> None:
    endpoint = PeerEndpoint(UNKNOWN_ID, "127.0.0.1", port_of(controller))

    survey = controller.run(survey_cluster([endpoint]))

    (asked,) = survey.asked
    assert (asked.problem, asked.leader_id) == ("", 100)
    assert survey.leader == PeerEndpoint(100, "127.0.0.1", endpoint.port)
    assert survey.problems == ()
    assert survey.answers.voters == {100}
    assert survey.answers.finalized_features["metadata.version"] == 33
    assert list(survey.image.topics.by_name) == ["orders"]
    assert list(survey.image.cluster.brokers) == [100]
    # The clock of a broker in a test stands still in 2023.
    assert survey.answers.clock_ahead_ms < -1_000_000


def test_the_command_says_it_to_people_and_to_programs(
    controller: InProcessBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{port_of(controller)}"
    node = ("-o", f"log.dirs={tmp_path}/new", "-o", "node.id=2")

    assert check(controller, "--controllers", address, *node) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"ok       controllers the node at {address} answers"
    assert lines[-1] == f"node 2 can join cluster {controller.server.components.node.cluster_id}: 0 faults, 1 warnings"

    controllers_id = ("-o", f"log.dirs={tmp_path}/new", "-o", "node.id=100")
    assert check(controller, "--controllers", f"{address},127.0.0.1:1", "--json", *controllers_id) == 1
    *verdicts, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert all(sorted(verdict) == ["about", "found", "remedy", "type"] for verdict in verdicts)
    faults = [one["found"] for one in verdicts if one["type"] == "fault"]
    assert faults == [
        "100 is a controller's id: a broker of the same id cannot fetch from it",
        f"100 is registered by a broker at 127.0.0.1:{controller.server.socket_server.listeners[0].port} with other "
        "data directories",
    ]
    assert summary == {"type": "summary", "can_join": False, "faults": 2, "warnings": 2}


def test_a_brokers_listener_is_no_controllers(
    controller: InProcessBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = controller.server.socket_server.listeners[0].port

    assert check(controller, "--controllers", f"127.0.0.1:{port}", "-o", f"log.dirs={tmp_path}/new") == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert "is no controller: it has answered with error 114 (MISMATCHED_ENDPOINT_TYPE)" in said.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--controllers", "127.0.0.1:1"], "no controller answers: the node at 127.0.0.1:1 cannot be reached"),
        ([], "--controllers, or controller.quorum.bootstrap.servers of the settings, must name the controllers"),
        (["--controllers", "c.example"], "expected host:port"),
        (["-o", "num.partitons=3"], "did you mean num.partitions?"),
    ],
)
def test_without_answers_nothing_is_said(
    tmp_path: Path, words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *words, "-o", f"log.dirs={tmp_path}/new"]) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert reason in said.err


def test_a_directory_that_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "meta.properties").write_text("version=7\n")

    assert main(["check", "--controllers", "127.0.0.1:1", "-o", f"log.dirs={tmp_path}"]) == 2

    assert f"{tmp_path}/meta.properties has version '7'" in capsys.readouterr().err
