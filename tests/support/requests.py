"""The requests that most tests send."""

from typing import Any

from protocol.messages.fetch import FetchRequest
from protocol.messages.produce import ProduceRequest


def produce_request(
    topic: str,
    records: bytes | bytearray | memoryview | None,
    *,
    partition: int = 0,
    acks: int = -1,
    topic_id: bytes = bytes(16),
    transactional_id: str | None = None,
) -> ProduceRequest:
    """A produce request for one partition."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequest.TopicData(
                name=topic,
                topic_id=topic_id,
                partition_data=[
                    ProduceRequest.TopicData.PartitionData(
                        index=partition, records=None if records is None else memoryview(records)
                    )
                ],
            )
        ],
    )


def fetch_request(
    *topics: str,
    offset: int = 0,
    partition: int = 0,
    topic_id: bytes = bytes(16),
    partition_max_bytes: int = 1 << 20,
    partition_fields: dict[str, Any] | None = None,
    **fields: Any,
) -> FetchRequest:
    """A fetch of one partition of each topic."""
    return FetchRequest(
        **{"max_wait_ms": 0, "min_bytes": 1, **fields},
        topics=[
            FetchRequest.Topic(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    FetchRequest.Topic.Partition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        **(partition_fields or {}),
                    )
                ],
            )
            for topic in topics or ("orders",)
        ],
    )
