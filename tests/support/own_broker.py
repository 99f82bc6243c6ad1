"""The broker of the controller's own process, as `LocalChannel` lets it ask."""

from collections.abc import Callable, Mapping, Sequence

from broker.controller.broker_changes import FoundLogs
from broker.controller.cluster_requests import ClusterRequests
from broker.controller.local_controller import LocalController
from broker.metadata.image.records import Record
from broker.metadata.registration import Registration, registered_features, registered_listeners
from protocol.messages.broker_lifecycle import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
)
from storage.topic_partition import TopicPartition

NOTHING_FOUND: Mapping[TopicPartition, bytes] = {}


class OwnBroker:
    """Runs of the own broker, one after the other."""

    def __init__(self, controller: LocalController, requests: ClusterRequests) -> None:
        self._controller = controller
        self._requests = requests

    def start(
        self,
        registration: Registration,
        bootstrap: Callable[[], Sequence[Record]] = tuple,
        *,
        was_clean: bool,
        found: Mapping[TopicPartition, bytes] = NOTHING_FOUND,
    ) -> None:
        """Register, and be unfenced."""
        controller = self._controller
        controller.begin(registration, bootstrap)
        self._requests.loaded(FoundLogs(found, was_clean=was_clean, is_complete=True, cordoned=registration.cordoned))
        of_request = BrokerRegistrationRequest
        request = of_request(
            broker_id=registration.node_id,
            cluster_id="",
            incarnation_id=registration.incarnation_id,
            listeners=registered_listeners(of_request.Listener, registration.endpoints),
            features=registered_features(of_request.Feature),
            rack=registration.rack,
            log_dirs=list(registration.directories),
            previous_broker_epoch=controller.broker_epoch if was_clean else -1,
        )
        self._requests.own_registration(request, lambda _: None)
        self.send()

    def send(
        self,
        then: Callable[[BrokerHeartbeatResponse], None] = lambda _: None,
        *,
        wants_shutdown: bool = False,
        failed: Sequence[bytes] = (),
    ) -> None:
        """Send a heartbeat of a broker that has applied everything."""
        request = BrokerHeartbeatRequest(
            broker_id=self._controller.node_id,
            broker_epoch=self._controller.broker_epoch,
            current_metadata_offset=self._controller.end_offset - 1,
            want_fence=False,
            want_shut_down=wants_shutdown,
            offline_log_dirs=list(failed),
        )
        self._requests.broker_heartbeat(request, then)
