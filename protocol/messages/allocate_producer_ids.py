"""AllocateProducerIds: a broker takes the next block of producer ids from the controller (KIP-730)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Int16, Int32, Int64, api_message


@api_message(ApiKey.ALLOCATE_PRODUCER_IDS)
class AllocateProducerIdsRequest:
    broker_id: Int32
    broker_epoch: Int64 = -1


@api_message(ApiKey.ALLOCATE_PRODUCER_IDS)
class AllocateProducerIdsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
