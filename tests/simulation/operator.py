"""Operator: moves partitions to other brokers, replicas to other directories, and has preferred leaders elected."""

from collections.abc import Sequence
from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse
from protocol.messages.log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from protocol.messages.reassignments import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from tests.simulation.client import SimulatedClient
from tests.simulation.cluster import require
from tests.simulation.history import Partition

FEWEST_REPLICAS: Final = 2
"""As many as have to be in sync, where there are so many brokers."""


class Operator:
    """Does one thing after the other, until it is told to stop."""

    def __init__(
        self,
        client: SimulatedClient,
        partitions: Sequence[Partition],
        node_ids: Sequence[int],
        log_dirs: Sequence[str],
    ) -> None:
        """``log_dirs``: the data directories of each broker."""
        self._client = client
        self._log_dirs = log_dirs
        self._partitions = partitions
        self._node_ids = node_ids
        self.is_over = False

    async def run(self) -> None:
        """Work until `is_over`."""
        random = self._client.random
        while not self.is_over:
            for _ in range(random.randint(1, 8)):
                await self._client.pause()
            chance = random.random()
            if chance < 0.3 and len(self._log_dirs) > 1:
                await self._move()
            elif chance < 0.7:
                await self._reassign()
            else:
                await self._elect()

    async def _reassign(self) -> None:
        """Move a partition, or call a move off. What is not answered may be carried out or not."""
        random = self._client.random
        topic, index = random.choice(self._partitions)
        most = len(self._node_ids)
        replicas = random.sample(self._node_ids, random.randint(min(FEWEST_REPLICAS, most), most))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=2_000,
            topics=[
                AlterPartitionReassignmentsRequest.Topic(
                    name=topic,
                    partitions=[
                        AlterPartitionReassignmentsRequest.Topic.Partition(
                            partition_index=index, replicas=None if random.random() < 0.2 else replicas
                        )
                    ],
                )
            ],
        )
        answer = await self._client.ask(
            self._client.any_broker, request, AlterPartitionReassignmentsResponse, version=0
        )
        if answer is not None:
            require(
                answer.error_code != ErrorCode.UNKNOWN_SERVER_ERROR,
                f"a reassignment of {topic}-{index} was answered with UNKNOWN_SERVER_ERROR",
            )

    async def _move(self) -> None:
        """Move a broker's replica to one of its data directories, in which it may be already."""
        random = self._client.random
        topic, index = random.choice(self._partitions)
        of_dir = AlterReplicaLogDirsRequest.Dir
        request = AlterReplicaLogDirsRequest(
            dirs=[of_dir(path=random.choice(self._log_dirs), topics=[of_dir.Topic(name=topic, partitions=[index])])]
        )
        answer = await self._client.ask(self._client.any_broker, request, AlterReplicaLogDirsResponse, version=2)
        if answer is not None:
            codes = [one.error_code for each in answer.results for one in each.partitions]
            require(
                ErrorCode.UNKNOWN_SERVER_ERROR not in codes,
                f"a move of {topic}-{index} was answered with UNKNOWN_SERVER_ERROR",
            )

    async def _elect(self) -> None:
        """Let a partition's preferred replica lead."""
        topic, index = self._client.random.choice(self._partitions)
        request = ElectLeadersRequest(
            topic_partitions=[ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[index])], timeout_ms=2_000
        )
        answer = await self._client.ask(self._client.any_broker, request, ElectLeadersResponse, version=2)
        if answer is not None:
            require(
                answer.error_code != ErrorCode.UNKNOWN_SERVER_ERROR,
                f"an election for {topic}-{index} was answered with UNKNOWN_SERVER_ERROR",
            )
