"""Error codes that older versions of an API do not know, each with the code that stands for it there."""

from collections.abc import Mapping
from typing import Final

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

_KNOWN_SINCE: Final[Mapping[tuple[ApiKey, ErrorCode], tuple[int, ErrorCode]]] = {
    (ApiKey.PRODUCE, ErrorCode.KAFKA_STORAGE_ERROR): (4, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.PRODUCE, ErrorCode.TRANSACTION_ABORTABLE): (11, ErrorCode.INVALID_TXN_STATE),
    (ApiKey.FETCH, ErrorCode.KAFKA_STORAGE_ERROR): (6, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.LIST_OFFSETS, ErrorCode.OFFSET_NOT_AVAILABLE): (5, ErrorCode.LEADER_NOT_AVAILABLE),
    (ApiKey.DELETE_TOPICS, ErrorCode.TOPIC_DELETION_DISABLED): (3, ErrorCode.INVALID_REQUEST),
    (ApiKey.INIT_PRODUCER_ID, ErrorCode.PRODUCER_FENCED): (4, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.PRODUCER_FENCED): (2, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.PRODUCER_FENCED): (2, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ApiKey.END_TXN, ErrorCode.PRODUCER_FENCED): (2, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): (2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.TRANSACTION_ABORTABLE): (4, ErrorCode.INVALID_TXN_STATE),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH): (6, ErrorCode.ILLEGAL_GENERATION),
}


def known_code(code: ErrorCode, api: ApiKey, version: int) -> ErrorCode:
    """The code as a client of this version knows it."""
    since, older = _KNOWN_SINCE.get((api, code), (0, code))
    return code if version >= since else older
