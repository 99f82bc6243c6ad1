"""ClusterRequests: what the brokers of a cluster ask of the controller in this process (KIP-631), its own among them.

Only the own broker can ask in its name: over the wire nobody is this node (`broker.handlers.controller_brokers`).

Each method takes the decoded request, and calls ``then`` with the response once everything that it rests on is durable:
on the loop, perhaps before the method returns. An error goes into the response, as Kafka's controller has it. Each
method raises StorageError where the metadata log cannot be written. A heartbeat makes up to three changes, of which the
first may have been written then; of all other requests nothing has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.controller.broker_changes import (
    FoundLogs,
    begin_controlled_shutdown,
    begin_to_fence,
    fail_directories,
    fence,
    unfence,
    unfence_own,
)
from broker.controller.broker_registration import plan_registration, register
from broker.controller.broker_sessions import BrokerControlState, next_state, state_of
from broker.controller.cluster_view import ClusterView
from broker.controller.local_controller import LocalController
from broker.metadata.record_versions import CORDONED_SINCE
from broker.request.faults import Fault, InvalidRequest
from broker.runtime.clock import Clock
from broker.runtime.counted import counted
from protocol.errors import ErrorCode
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.broker_lifecycle import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.records.cluster_metadata import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from storage.errors import StorageError

if TYPE_CHECKING:
    from protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse

log = logging.getLogger(__name__)

MOST_CHANGES: Final = 1_000
"""How many partitions one look at the sessions changes: a twentieth of a second."""

RETRY_MS: Final = 1_000
"""After how long a session is looked at again that could not be ended, since the metadata log's disk was full."""


class ClusterSettings(NamedTuple):
    """The settings of a controller, with Kafka's defaults."""

    rebalances_leaders: bool = True
    """`auto.leader.rebalance.enable`"""
    rebalance_interval_ms: int = 300_000
    """`leader.imbalance.check.interval.seconds`"""


DEFAULTS: Final = ClusterSettings()


class ClusterRequests:
    """Answers the brokers of the cluster. All methods belong to the loop's thread."""

    def __init__(
        self,
        controller: LocalController,
        *,
        cluster_id: str,
        clock: Clock,
        settings: ClusterSettings = DEFAULTS,
        others_can_join: bool = True,
    ) -> None:
        """Made before this node's own broker registers.

        A broker that the metadata log has as unfenced has a session from now on. Where ``others_can_join`` is false,
        other brokers that the metadata log has are gone for good.
        """
        self._controller = controller
        self._cluster_id = cluster_id
        self._clock = clock
        self._settings = settings
        self._sessions = controller.sessions
        controller.others_can_join = others_can_join
        self._logs = FoundLogs({}, was_clean=False, is_complete=True)
        now_ms = clock.monotonic_ms()
        for broker in controller.others.values():
            if not broker.fenced:
                self._sessions.begin(broker.broker_id, broker.broker_epoch, now_ms)
        self._next_election_ms = now_ms + settings.rebalance_interval_ms
        self._last_refused: tuple[int, bytes, str] | None = None
        """The broker, its incarnation and why it was refused last: a broker asks again twice a second."""

    def loaded(self, logs: FoundLogs) -> None:
        """This node's own broker has loaded its logs. Called before it registers."""
        self._logs = logs
        self._controller.own_cordoned = logs.cordoned

    def broker_registration(
        self, request: BrokerRegistrationRequest, then: Callable[[BrokerRegistrationResponse], None]
    ) -> None:
        """Register a run of another broker, which is fenced at first (KIP-631)."""
        controller, now_ms = self._controller, self._clock.monotonic_ms()
        view = controller.view()
        before = view.broker(request.broker_id)
        has_valid_session = before is not None and self._sessions.is_valid(
            before.broker_id, before.broker_epoch, now_ms
        )
        try:
            registered = plan_registration(
                view,
                request,
                cluster_id=self._cluster_id,
                kraft_version=controller.kraft_version,
                has_valid_session=has_valid_session,
                end_offset=controller.end_offset,
            )
        except Fault as fault:
            refusal = BrokerRegistrationResponse(error_code=fault.code)
            if (refused := (request.broker_id, request.incarnation_id, str(fault))) != self._last_refused:
                self._last_refused = refused
                log.info("broker %d is not registered: %s", request.broker_id, fault)
            controller.append_or_wait(refusal, (), then)
            return
        answer = BrokerRegistrationResponse(broker_epoch=registered.broker_epoch)
        controller.append([*registered.changes, registered.record], lambda: then(answer))
        if registered.is_new_run:
            self._sessions.begin(request.broker_id, registered.broker_epoch, now_ms)
        else:
            self._sessions.renew(request.broker_id, now_ms)
        log.info(
            "broker %d is registered %s, with the epoch %d",
            request.broker_id,
            "for a new run" if registered.is_new_run else "again",
            registered.broker_epoch,
        )

    def own_registration(
        self, request: BrokerRegistrationRequest, then: Callable[[BrokerRegistrationResponse], None]
    ) -> None:
        """Register a run of this node's own broker, which nothing keeps from it: the directory says which it is."""
        controller = self._controller
        registered = register(controller.view(), request, end_offset=controller.end_offset)
        if controller.image.features.metadata_version >= CORDONED_SINCE:
            registered.record.cordoned_log_dirs = list(self._logs.cordoned)
        answer = BrokerRegistrationResponse(broker_epoch=registered.broker_epoch)
        controller.append([*registered.changes, registered.record], lambda: then(answer))

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, then: Callable[[BrokerHeartbeatResponse], None]
    ) -> None:
        """Keep a broker's session, and fence, unfence or stop the broker as it asks (KIP-631, KIP-858)."""
        controller, sessions = self._controller, self._sessions
        broker = self._known(request.broker_id, request.broker_epoch)
        if broker is None:
            stale = BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            controller.append_or_wait(stale, (), then)
            return
        broker = self._fail_directories(broker, request.offline_log_dirs)
        view = controller.view()
        is_caught_up = request.current_metadata_offset >= broker.broker_epoch
        active = [other for other in controller.others if other != broker.broker_id and view.is_active(other)]
        is_own = broker.broker_id == controller.node_id
        state = state_of(broker)
        after = next_state(
            state,
            wants_fence=request.want_fence,
            wants_shutdown=request.want_shut_down,
            is_caught_up=is_caught_up,
            # The controller stops with its own broker. The others could not learn later who leads, whatever it led.
            leads_anything=lambda: (
                state is BrokerControlState.UNFENCED and bool(active)
                if is_own
                else view.leads_anything(broker.broker_id)
            ),
            is_shutdown_known=lambda: (
                (is_own and not active)
                or sessions.is_shutdown_known(
                    broker.broker_id, active, end_offset=controller.end_offset, high_watermark=controller.high_watermark
                )
            ),
        )
        self._change_state(view, broker, state, after)
        self._cordon(broker, request.cordoned_log_dirs)
        if not is_own:  # whose silence is no news
            sessions.touch(
                broker.broker_id, broker.broker_epoch, request.current_metadata_offset, self._clock.monotonic_ms()
            )
        answer = BrokerHeartbeatResponse(
            is_caught_up=is_caught_up,
            is_fenced=after in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
            should_shut_down=after is BrokerControlState.SHUTDOWN_NOW,
        )

        def answered() -> None:
            sessions.answered(broker.broker_id, broker.broker_epoch, self._clock.monotonic_ms())
            then(answer)

        controller.when_durable(answered)

    def alter_partition(self, request: AlterPartitionRequest, then: Callable[[AlterPartitionResponse], None]) -> None:
        """Change the replicas in sync as the leaders of partitions ask (KIP-497), each with its own success or error.

        A decoded request of version 2 has the field ``new_isr`` only, later versions ``new_isr_with_epochs`` only. The
        request of this node's own broker has both.
        """
        from broker.controller.isr_alteration import IsrPlanner

        if self._known(request.broker_id, request.broker_epoch) is None:
            stale = AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[])
            self._controller.append_or_wait(stale, (), then)
            return
        planner = IsrPlanner(self._controller.view(), request.broker_id)
        answer = planner.plan(request.topics)
        self._controller.append_or_wait(answer, planner.records, then)

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, then: Callable[[AllocateProducerIdsResponse], None]
    ) -> None:
        """Give a broker the next block of producer ids (KIP-730)."""
        if self._known(request.broker_id, request.broker_epoch) is None:
            stale = AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            self._controller.append_or_wait(stale, (), then)
            return

        def allocated(block: range) -> None:
            then(AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block)))

        self._controller.allocate_producer_ids(request.broker_id, request.broker_epoch, allocated)

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest, then: Callable[[AssignReplicasToDirsResponse], None]
    ) -> None:
        """Take over in which log directories a broker's replicas are (KIP-858), each with its own success or error."""
        from broker.controller.directory_assignments import DirectoryPlanner

        broker = self._known(request.broker_id, request.broker_epoch)
        if broker is None:
            stale = AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, directories=[])
            self._controller.append_or_wait(stale, (), then)
            return
        planner = DirectoryPlanner(self._controller.view(), broker)
        answer = planner.plan(request.directories)
        self._controller.append_or_wait(answer, planner.records, then)

    def elect_leaders(self, request: ElectLeadersRequest, then: Callable[[ElectLeadersResponse], None]) -> None:
        """Elect the preferred leaders of partitions, or any leaders (KIP-183, KIP-460).

        A request without partitions means all; those that need no election are left out of the response then.
        """
        from broker.controller.elections import ElectionPlanner
        from protocol.messages.elections import ElectLeadersResponse

        try:
            planner = ElectionPlanner(self._controller.view(), request.election_type)
        except InvalidRequest as fault:
            refusal = ElectLeadersResponse(error_code=fault.code, replica_election_results=[])
            self._controller.append_or_wait(refusal, (), then)
            return
        answer = planner.plan(request.topic_partitions)
        self._controller.append_or_wait(answer, planner.records, then)

    def session_check(self, now_ms: int) -> int:
        """Fence a broker whose session is over, and balance leaders when that is due. Call it periodically.

        One call changes `MOST_CHANGES` partitions at most and fences one broker: heartbeats are read between two calls.

        Args:
            now_ms: milliseconds of the monotonic clock.

        Returns: when to call again at the latest, in milliseconds of the monotonic clock.
        """
        try:
            if self._fence_first_overdue(now_ms):
                return now_ms
            if now_ms >= self._next_election_ms:
                has_more = self._hold_periodic_elections()
                self._next_election_ms = now_ms if has_more else now_ms + self._settings.rebalance_interval_ms
        except StorageError as error:
            log.warning("no broker can be fenced now, since the metadata log cannot be written: %s", error)
            return now_ms + RETRY_MS
        deadline_ms = self._sessions.next_deadline_ms(self._unfenced())
        return self._next_election_ms if deadline_ms is None else min(deadline_ms, self._next_election_ms)

    def _known(self, broker_id: int, broker_epoch: int) -> RegisterBrokerRecord | None:
        """The broker's registration, None if it has registered anew since, or is not registered."""
        broker = self._controller.image.cluster.brokers.get(broker_id)
        return broker if broker is not None and broker.broker_epoch == broker_epoch else None

    def _fail_directories(self, broker: RegisterBrokerRecord, failed: Sequence[bytes]) -> RegisterBrokerRecord:
        """Take over which log directories have failed; return the registration then."""
        controller = self._controller
        records = fail_directories(controller.view(), broker, [bytes(directory) for directory in failed])
        if records:
            controller.append(records)
        return controller.image.cluster.brokers[broker.broker_id]

    def _cordon(self, broker: RegisterBrokerRecord, cordoned: Sequence[bytes] | None) -> None:
        """Take over which log directories take no new replicas (KIP-1066). None says nothing of them."""
        controller = self._controller
        if cordoned is not None and broker.broker_id == controller.node_id:
            controller.own_cordoned = cordoned
        if (
            cordoned is not None
            and cordoned != broker.cordoned_log_dirs
            and controller.image.features.metadata_version >= CORDONED_SINCE
        ):
            change = BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, cordoned_log_dirs=list(cordoned)
            )
            controller.append([change])

    def _change_state(
        self, view: ClusterView, broker: RegisterBrokerRecord, state: BrokerControlState, after: BrokerControlState
    ) -> None:
        controller = self._controller
        if after is state:
            return
        if after is BrokerControlState.CONTROLLED_SHUTDOWN:
            controller.append(begin_controlled_shutdown(view, broker))
            self._sessions.begin_shutdown(broker.broker_id, controller.end_offset - 1)
        elif after is BrokerControlState.UNFENCED and broker.broker_id == controller.node_id:
            self._unfence_own(view, broker)
            return
        elif after is BrokerControlState.UNFENCED:
            controller.append(unfence(view, broker))
        elif not broker.fenced:
            controller.append(fence(view, broker))
        log.info("broker %d is %s", broker.broker_id, _SAID[after])

    def _unfence_own(self, view: ClusterView, broker: RegisterBrokerRecord) -> None:
        records, offline = unfence_own(view, broker, self._logs)
        self._controller.append(records)
        self._logs = self._logs._replace(directories={})  # which no other start needs
        if offline:
            log.error("%s offline without an available log directory", counted(offline, "partition"))
        if len(records) > 1:
            log.info("leading %s in a new leader epoch", counted(len(records) - 1, "partition"))

    def _unfenced(self) -> list[int]:
        return [broker_id for broker_id, broker in self._controller.others.items() if not broker.fenced]

    def _fence_first_overdue(self, now_ms: int) -> bool:
        """Whether the broker is still to be fenced, after more changes of its partitions."""
        controller = self._controller
        for broker_id in self._sessions.overdue(self._unfenced(), now_ms)[:1]:
            view, broker = controller.view(), controller.image.cluster.brokers[broker_id]
            if changes := begin_to_fence(view, broker, MOST_CHANGES):
                controller.append(changes)
                return True
            controller.append(fence(view, broker))
            self._sessions.timed_out += 1
            log.warning("broker %d is fenced: it has sent no heartbeat for %d ms", broker_id, self._sessions.timeout_ms)
        return False

    def _hold_periodic_elections(self) -> bool:
        """Whether there are more elections than one turn holds."""
        from broker.controller.elections import balance_leaders, elect_unclean_leaders

        controller, has_more = self._controller, False
        if not controller.others:
            return False  # this node leads all its partitions
        elections = [elect_unclean_leaders]
        if self._settings.rebalances_leaders:
            elections.append(balance_leaders)
        for elect in elections:
            elected = elect(controller.view())
            has_more = has_more or elected.has_more
            if elected.records:
                controller.append(elected.records)
                log.info("other leaders for %s", counted(len(elected.records), "partition"))
        return has_more


_SAID: Final = {
    BrokerControlState.FENCED: "fenced, as it has asked",
    BrokerControlState.UNFENCED: "unfenced",
    BrokerControlState.CONTROLLED_SHUTDOWN: "shutting down, and hands its leaderships over",
    BrokerControlState.SHUTDOWN_NOW: "fenced, and may stop",
}
