"""AlterReplicaLogDirs through the codec."""

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.log_dirs import AlterReplicaLogDirsRequest
from tests.support.broker import InProcessBroker

Dir = AlterReplicaLogDirsRequest.Dir


def move(broker: InProcessBroker, *wanted: tuple[str, str, list[int]], version: int = 2) -> dict[str, dict[int, int]]:
    """Error code by partition by topic, of (directory, topic, partitions)."""
    dirs = [Dir(path=path, topics=[Dir.Topic(name=topic, partitions=partitions)]) for path, topic, partitions in wanted]
    results = broker.ask(AlterReplicaLogDirsRequest(dirs=dirs), version).results
    assert len({result.topic_name for result in results}) == len(results)
    return {result.topic_name: {one.partition_index: one.error_code for one in result.partitions} for result in results}


@serves(AlterReplicaLogDirsRequest, E.NONE, E.LOG_DIR_NOT_FOUND, E.UNKNOWN_TOPIC_OR_PARTITION)
@every_version(AlterReplicaLogDirsRequest)
def test_a_replica_that_is_where_it_is_wanted_stays_there(broker: InProcessBroker, version: int) -> None:
    broker.create_topic("orders", partitions=2)
    here = str(broker.directory)
    assert move(broker, (here, "orders", [0, 1, 7]), (here, "nowhere", [0]), version=version) == {
        "orders": {0: E.NONE, 1: E.NONE, 7: E.UNKNOWN_TOPIC_OR_PARTITION},
        "nowhere": {0: E.UNKNOWN_TOPIC_OR_PARTITION},
    }
    for path in ("/nowhere", "", f"{here}/"):
        assert move(broker, (path, "orders", [0]), (path, "nowhere", [0]), version=version) == {
            "orders": {0: E.LOG_DIR_NOT_FOUND},
            "nowhere": {0: E.LOG_DIR_NOT_FOUND},
        }
    assert move(broker, version=version) == {}


def test_of_two_directories_the_last_counts(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    here = str(broker.directory)
    assert move(broker, ("/nowhere", "orders", [0]), (here, "orders", [0])) == {"orders": {0: E.NONE}}
    assert move(broker, (here, "orders", [0]), ("/nowhere", "orders", [0])) == {"orders": {0: E.LOG_DIR_NOT_FOUND}}


@serves(AlterReplicaLogDirsRequest, E.INVALID_TOPIC_EXCEPTION, versions=[2])
def test_a_topic_whose_copy_would_have_too_long_a_name_is_refused_wherever_it_is_to_go(broker: InProcessBroker) -> None:
    short, long = "s" * 213, "l" * 214  # with "-0." before 32 digits and "-future" 255 and 256
    here = str(broker.directory)
    broker.create_topic(short)
    assert move(broker, (here, short, [0]), ("/nowhere", long, [0])) == {
        short: {0: E.NONE},
        long: {0: E.INVALID_TOPIC_EXCEPTION},
    }
