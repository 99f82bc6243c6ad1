"""Deleter: has the beginnings of partitions deleted by DeleteRecords, while the run lasts."""

from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from tests.simulation.client import SimulatedClient
from tests.simulation.cluster import require
from tests.simulation.history import History, Partition


class Deleter:
    """Deletes what was acknowledged up to some offset, until it is told to stop."""

    def __init__(
        self, client: SimulatedClient, history: History, partitions: list[Partition], *, is_for_good: bool
    ) -> None:
        """``is_for_good``: whether no record that was deleted may come back."""
        self._is_for_good = is_for_good
        self._client = client
        self._history = history
        self._partitions = partitions
        self.is_over = False

    async def run(self) -> None:
        """Delete until `is_over`."""
        client, random = self._client, self._client.random
        while not self.is_over:
            for _ in range(random.randint(1, 8)):
                await client.pause()
            partition = random.choice(self._partitions)
            acknowledged = self._history.of(partition).acknowledged
            if acknowledged:
                await self._delete(partition, random.randint(0, max(acknowledged)))

    async def _delete(self, partition: Partition, offset: int) -> None:
        """Delete the records below an offset. What is not answered may be carried out or not."""
        topic, index = partition
        history = self._history.of(partition)
        history.may_begin_at = max(history.may_begin_at, offset)
        of_topic = DeleteRecordsRequest.Topic
        request = DeleteRecordsRequest(
            topics=[of_topic(name=topic, partitions=[of_topic.Partition(partition_index=index, offset=offset)])],
            timeout_ms=2_000,
        )
        answer = await self._client.ask_leader(topic, index, request, DeleteRecordsResponse, version=2)
        if answer is None:
            return
        found = answer.topics[0].partitions[0]
        require(
            found.error_code != ErrorCode.UNKNOWN_SERVER_ERROR,
            f"a deletion of records of {partition} was answered with UNKNOWN_SERVER_ERROR",
        )
        if found.error_code == ErrorCode.NONE and self._is_for_good:
            history.begins_at = max(history.begins_at, found.low_watermark)
        elif found.error_code != ErrorCode.NONE:
            self._client.forget(topic)
