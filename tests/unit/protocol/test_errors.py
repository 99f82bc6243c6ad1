"""The table of error codes."""

import inspect
import warnings

from protocol.errors import ErrorCode

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its definitions through a deprecated function
    import kafka.errors

# Where kafka-python keeps an older name than Kafka's, or flags that differ from Kafka's.
_OLDER_NAMES = {
    "UNKNOWN_SERVER_ERROR": "UNKNOWN",
    "NONE": "NO_ERROR",
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "MESSAGE_TOO_LARGE": "MESSAGE_SIZE_TOO_LARGE",
    "INVALID_TOPIC_EXCEPTION": "INVALID_TOPIC",
    "INVALID_REPLICA_ASSIGNMENT": "INVALID_REPLICATION_ASSIGNMENT",
}
_OTHER_FLAGS = {"CORRUPT_MESSAGE", "UNKNOWN_LEADER_EPOCH"}


def test_the_codes_are_those_of_kafka_4_4_0() -> None:
    assert [code.value for code in ErrorCode] == list(range(-1, 137))
    for code, name in {
        -1: "UNKNOWN_SERVER_ERROR",
        0: "NONE",
        3: "UNKNOWN_TOPIC_OR_PARTITION",
        35: "UNSUPPORTED_VERSION",
        56: "KAFKA_STORAGE_ERROR",
        87: "INVALID_RECORD",
        100: "UNKNOWN_TOPIC_ID",
        129: "REBOOTSTRAP_REQUIRED",
        133: "SHARE_SESSION_LIMIT_REACHED",
        136: "CONTROLLER_ID_NOT_REGISTERED",
    }.items():
        assert ErrorCode(code).name == name


def test_names_and_flags_are_those_that_kafka_python_knows() -> None:
    known = {
        error.errno: error
        for _, error in inspect.getmembers(kafka.errors, inspect.isclass)
        if getattr(error, "errno", None) is not None
    }
    assert len(known) > 120
    for code in ErrorCode:
        error = known.get(code.value)
        if error is None:
            assert code.value >= 128, f"kafka-python should know {code!r}"
            continue
        assert error.message == _OLDER_NAMES.get(code.name, code.name)
        if code.name not in _OTHER_FLAGS:
            assert (error.retriable, error.invalid_metadata) == (code.retriable, code.refreshes_metadata), code


def test_only_errors_that_may_pass_are_retriable() -> None:
    assert sum(code.retriable for code in ErrorCode) == 32
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.CORRUPT_MESSAGE.retriable
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable
    assert not ErrorCode.NONE.retriable


def test_an_error_that_makes_clients_look_for_the_leader_is_retriable() -> None:
    refreshing = {code for code in ErrorCode if code.refreshes_metadata}

    assert len(refreshing) == 13
    assert all(code.retriable for code in refreshing)
    assert ErrorCode.UNKNOWN_TOPIC_ID in refreshing
    assert ErrorCode.REQUEST_TIMED_OUT not in refreshing
