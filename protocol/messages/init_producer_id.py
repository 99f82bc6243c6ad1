"""InitProducerId: an identity for an idempotent or transactional producer.

Version 6 is defined in Kafka 4.4.0 and not served by it, nor here.
"""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Int16, Int32, Int64, String, api_message, field


@api_message(ApiKey.INIT_PRODUCER_ID)
class InitProducerIdRequest:
    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field(since=3, default=-1)
    producer_epoch: Int16 = field(since=3, default=-1)


@api_message(ApiKey.INIT_PRODUCER_ID)
class InitProducerIdResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = field(refused=-1)
