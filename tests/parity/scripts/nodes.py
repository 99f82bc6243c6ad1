"""What administrators ask of nodes: features, registrations, voters and the places of replicas."""

from typing import Any

from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.features import UpdateFeaturesRequest
from protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from protocol.messages.quorum import AddRaftVoterRequest, DescribeQuorumRequest, RemoveRaftVoterRequest
from protocol.messages.registrations import UnregisterBrokerRequest, UnregisterControllerRequest
from tests.parity.exchange import Exchange

RELEASE_VERSION = "4.0"

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

DIRECTORY = bytes(15) + b"\1"


def run(exchange: Exchange) -> None:
    features(exchange)
    for node_id in (1, 9, -1):
        exchange.ask_each(f"controller {node_id}", UnregisterControllerRequest(controller_id=node_id))
    for node_id in (9, -1, 0x7FFF_FFFF):
        exchange.ask_each(f"broker {node_id}", UnregisterBrokerRequest(broker_id=node_id))
    voters(exchange)
    places(exchange)


def features(exchange: Exchange) -> None:
    def update(version: int, *levels: tuple[str, int], upgrade_type: int = UPGRADE) -> UpdateFeaturesRequest:
        return UpdateFeaturesRequest(
            feature_updates=[
                UpdateFeaturesRequest.FeatureUpdate(
                    feature=feature,
                    max_version_level=level,
                    allow_downgrade=version == 0 and upgrade_type != UPGRADE,
                    upgrade_type=upgrade_type if version > 0 else UPGRADE,
                )
                for feature, level in levels
            ],
            validate_only=version > 0,
        )

    def ask(step: str, *levels: tuple[str, int], since: int = 0, upgrade_type: int = UPGRADE) -> None:
        for version in range(since, 3):
            exchange.ask(step, update(version, *levels, upgrade_type=upgrade_type), version)

    ask("nothing")
    ask("the level that it has", ("metadata.version", 25))
    ask("two levels that are there", ("metadata.version", 25), ("kraft.version", 1))
    ask("a feature twice", ("kraft.version", 1), ("kraft.version", 1))
    ask("the level that it has, as a downgrade", ("kraft.version", 1), upgrade_type=SAFE_DOWNGRADE)
    ask("a level of the future", ("metadata.version", 1000))
    ask("a level of the past", ("metadata.version", 6), upgrade_type=SAFE_DOWNGRADE)
    ask("a lower level", ("metadata.version", 20))
    ask("a lower level, safely", ("metadata.version", 20), upgrade_type=SAFE_DOWNGRADE)
    ask("a lower level, unsafely", ("metadata.version", 20), since=1, upgrade_type=UNSAFE_DOWNGRADE)
    ask("a negative level", ("metadata.version", -1))
    ask("an older protocol of voters", ("kraft.version", 0), upgrade_type=SAFE_DOWNGRADE)
    ask("a newer protocol of voters", ("kraft.version", 2))
    ask("a feature that there is not", ("bogus.version", 1))
    ask("a feature without a name", ("", 1))
    ask("a newer level, as a downgrade", ("metadata.version", 26), since=1, upgrade_type=SAFE_DOWNGRADE)
    ask("a lower level that loses nothing", ("metadata.version", 24), since=1, upgrade_type=SAFE_DOWNGRADE)
    ask("no level of a feature that there is not", ("bogus.version", 0))
    ask("good and bad", ("metadata.version", 25), ("bogus.version", 1))
    ask("upgrade type 0", ("metadata.version", 25), since=1, upgrade_type=0)
    ask("upgrade type 9", ("metadata.version", 25), since=1, upgrade_type=9)


def voters(exchange: Exchange) -> None:
    cluster_id = exchange.ask(None, DescribeClusterRequest(), 0).cluster_id
    topic = DescribeQuorumRequest.Topic
    asked = topic(topic_name="__cluster_metadata", partitions=[topic.Partition(partition_index=0)])
    quorum = exchange.ask(None, DescribeQuorumRequest(topics=[asked]), 2)
    directory = quorum.topics[0].partitions[0].current_voters[0].replica_directory_id
    listeners = [AddRaftVoterRequest.Listener(name="CONTROLLER", host="127.0.0.1", port=9093)]

    def add(**fields: Any) -> AddRaftVoterRequest:
        usual = {"cluster_id": cluster_id, "timeout_ms": 1000, "voter_id": 5, "voter_directory_id": DIRECTORY}
        return AddRaftVoterRequest(**{**usual, "listeners": listeners, **fields})

    exchange.ask_each("a controller that nobody knows", add())
    exchange.ask_each("of no cluster by name", add(cluster_id=None))
    exchange.ask_each("of another cluster", add(cluster_id="another"))
    exchange.ask_each("the one that votes", add(voter_id=1, voter_directory_id=directory))
    exchange.ask_each("the one that votes, from another directory", add(voter_id=1))
    exchange.ask_each("without listeners", add(listeners=[]))
    exchange.ask_each("without a directory", add(voter_directory_id=bytes(16)))
    exchange.ask_each("with a negative id", add(voter_id=-1))
    exchange.ask_each("with a negative id, of another cluster", add(cluster_id="another", voter_id=-1))

    def remove(**fields: Any) -> RemoveRaftVoterRequest:
        usual = {"cluster_id": cluster_id, "voter_id": 5, "voter_directory_id": DIRECTORY}
        return RemoveRaftVoterRequest(**{**usual, **fields})

    exchange.ask_each("a controller that nobody knows", remove())
    exchange.ask_each("of no cluster by name", remove(cluster_id=None))
    exchange.ask_each("of another cluster", remove(cluster_id="another"))
    exchange.ask_each("the only one", remove(voter_id=1, voter_directory_id=directory))
    exchange.ask_each("the only one, from another directory", remove(voter_id=1))
    exchange.ask_each("without a directory", remove(voter_id=1, voter_directory_id=bytes(16)))
    exchange.ask_each("with a negative id", remove(voter_id=-1))


def places(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=2)
    here = exchange.ask(None, DescribeLogDirsRequest(topics=[]), 4).results[0].log_dir

    def move(*wanted: tuple[str, str, list[int]]) -> AlterReplicaLogDirsRequest:
        place = AlterReplicaLogDirsRequest.Dir
        return AlterReplicaLogDirsRequest(
            dirs=[
                place(path=path, topics=[place.Topic(name=topic, partitions=partitions)])
                for path, topic, partitions in wanted
            ]
        )

    exchange.ask_each("nothing", move())
    exchange.ask_each("where they are", move((here, "orders", [0, 1])))
    exchange.ask_each("a partition twice", move((here, "orders", [0, 0])))
    exchange.ask_each("partitions that there are not", move((here, "orders", [2, -1])))
    for topic in ("nope", "no spaces", "", "__cluster_metadata"):
        exchange.ask_each(f"the topic {topic!r}", move((here, topic, [0])))
    for what, path in (("nowhere", "/nowhere"), ("relative", "data"), ("nothing", ""), ("a slash more", f"{here}/")):
        exchange.ask_each(f"a directory that there is not, {what}", move((path, "orders", [0]), (path, "nope", [0])))
    exchange.ask_each("first nowhere, then here", move(("/nowhere", "orders", [0]), (here, "orders", [0])))
    exchange.ask_each("first here, then nowhere", move((here, "orders", [0]), ("/nowhere", "orders", [0])))
