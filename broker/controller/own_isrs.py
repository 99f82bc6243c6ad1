"""OwnIsrs: the controller in this process changes the ISRs of the partitions that its own broker leads (KIP-497)."""

import logging
from collections.abc import Callable
from functools import partial

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


class OwnIsrs:
    """The `IsrAlterer` of a node that is its own controller."""

    def __init__(self, requests: ClusterRequests, *, node_id: int, broker_epoch: Callable[[], int]) -> None:
        """``broker_epoch`` is that of this broker's registration."""
        self._requests = requests
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._under_way: dict[tuple[bytes, int], WantedIsr] = {}

    def submit(self, wanted: WantedIsr, then: Then) -> bool:
        """Part of `IsrAlterer`. A metadata log that cannot be written refuses the change: the leader asks again."""
        place = wanted.topic_id, wanted.partition
        if place in self._under_way:
            return False
        self._under_way[place] = wanted
        request = alteration_request([wanted], self._node_id, self._broker_epoch())
        try:
            self._requests.alter_partition(request, partial(self._answered, wanted, then))
        except StorageError as error:
            log.warning("the replicas in sync cannot be changed now: %s", error)
            del self._under_way[place]
            return False
        return True

    def withdraw(self, topic_id: bytes, partition: int) -> None:
        """Part of `IsrAlterer`."""
        self._under_way.pop((topic_id, partition), None)

    def _answered(self, wanted: WantedIsr, then: Then, answer: AlterPartitionResponse) -> None:
        place = wanted.topic_id, wanted.partition
        if self._under_way.get(place) is not wanted:
            return
        del self._under_way[place]
        found = next((one for topic in answer.topics for one in topic.partitions), None)
        outcome = None if found is None else outcome_of(found)
        then(outcome or IsrRefused())
