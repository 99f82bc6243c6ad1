"""OwnIsrs: the controller in this process changes the ISRs of the partitions that its own broker leads (KIP-497)."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from broker.controller.cluster_requests import ClusterRequests
from broker.replication.isr_alteration import (
    IsrRefused,
    Then,
    WantedIsr,
    alteration_request,
    outcome_of,
)
from protocol.messages.alter_partition import AlterPartitionResponse
from storage.errors import StorageError

log = logging.getLogger(__name__)

_Changes: TypeAlias = dict[tuple[bytes, int], tuple[WantedIsr, Then]]
"""By topic id and partition."""


class OwnIsrs:
    """The `IsrAlterer` of a node that is its own controller. What is submitted in one turn of the loop is one change of
    the metadata: a broker that comes back joins thousands of ISRs."""

    def __init__(
        self,
        requests: ClusterRequests,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """``broker_epoch`` is that of this broker's registration."""
        self._requests = requests
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._call_soon = call_soon
        self._submitted: _Changes = {}
        self._under_way: _Changes = {}

    def submit(self, wanted: WantedIsr, then: Then) -> bool:
        """Part of `IsrAlterer`. A metadata log that cannot be written refuses the change: the leader asks again."""
        place = wanted.topic_id, wanted.partition
        if place in self._under_way or place in self._submitted:
            return False
        if not self._submitted:
            self._call_soon(self._ask)
        self._submitted[place] = wanted, then
        return True

    def withdraw(self, topic_id: bytes, partition: int) -> None:
        """Part of `IsrAlterer`."""
        self._submitted.pop((topic_id, partition), None)
        self._under_way.pop((topic_id, partition), None)

    def _ask(self) -> None:
        asked, self._submitted = self._submitted, {}
        if not asked:
            return
        self._under_way |= asked
        request = alteration_request([wanted for wanted, _ in asked.values()], self._node_id, self._broker_epoch())
        try:
            self._requests.alter_partition(request, partial(self._answered, asked))
        except StorageError as error:
            log.warning("the replicas in sync cannot be changed now: %s", error)
            self._answered(asked, AlterPartitionResponse(topics=[]))

    def _answered(self, asked: _Changes, answer: AlterPartitionResponse) -> None:
        found = {
            (bytes(topic.topic_id), one.partition_index): outcome_of(one)
            for topic in answer.topics
            for one in topic.partitions
        }
        for place, change in asked.items():
            if self._under_way.get(place) is change:
                del self._under_way[place]
                change[1](found.get(place) or IsrRefused())
