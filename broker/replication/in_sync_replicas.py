"""InSyncReplicas: what a partition's leader knows of its followers, and who is in sync, as a pure state machine.

    committed ISR      as the controller has it (KIP-497)
    maximal ISR        with the followers of an addition that is not answered yet
    high watermark     the smallest log end of the leader, the maximal ISR, and those that are about to join it

A follower's log end is the offset at which it fetches. It is caught up while that is the leader's end, or if it has
fetched at the end that the leader had when it fetched before; the time of that earlier fetch counts.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

NOT_FETCHED: Final = -1

NEVER: Final = -(2**62)
"""A time before all others: the monotonic clock may begin at 0 when the machine starts, just before this process."""

NO_BROKER_EPOCH: Final = -1
"""Of a follower whose version of Fetch does not tell the epoch of its registration."""


class FollowerState:
    """What the leader knows of one follower in this leader epoch."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetched_ms",
        "has_stopped",
        "leaders_end_offset",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, *, caught_up_ms: int) -> None:
        self.log_end_offset = NOT_FETCHED
        self.log_start_offset = NOT_FETCHED
        self.broker_epoch = NO_BROKER_EPOCH
        """The epoch of the follower's registration, as its last fetch says."""
        self.caught_up_ms = caught_up_ms
        """When the follower was last known to have all that the leader had; `NEVER` if it was not in this epoch."""
        self.fetched_ms = NEVER
        self.has_stopped = False
        """Whether the follower has told since its last fetch that it does not fetch the partition any more."""
        self.leaders_end_offset = NOT_FETCHED
        """The leader's log end at the follower's last fetch."""

    def is_caught_up(self, leaders_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether the follower has all records, or has had them less than ``lag_max_ms`` ago."""
        return self.log_end_offset == leaders_end_offset or now_ms - self.caught_up_ms <= lag_max_ms


class FollowerFetch(NamedTuple):
    """What a follower's fetch says about the follower."""

    fetch_offset: int
    log_start_offset: int
    broker_epoch: int


class IsrChange(NamedTuple):
    """A change of the ISR that the controller is asked for (AlterPartition)."""

    isr: Mapping[int, int]
    """The wanted ISR: the epoch of each broker's registration by its id."""
    partition_epoch: int
    """The version of the partition that it changes."""


class InSyncReplicas:
    """The followers of one partition that this broker leads, in one leader epoch."""

    def __init__(
        self,
        *,
        node_id: int,
        replicas: Collection[int],
        isr: Collection[int],
        partition_epoch: int,
        epoch_start_offset: int,
        now_ms: int,
        lag_max_ms: int,
    ) -> None:
        """
        Args:
            node_id: this broker, which leads.
            replicas: all replicas of the partition.
            isr: the replicas in sync, as the controller has them; a leader trusts them until they lag.
            partition_epoch: the version of the partition at the controller.
            epoch_start_offset: where the leader epoch begins; who joins the ISR has come so far.
            now_ms: the monotonic time, from which the followers in the ISR count as caught up.
            lag_max_ms: `replica.lag.time.max.ms`.
        """
        self._node_id = node_id
        self.epoch_start_offset = epoch_start_offset
        """Where the leader epoch begins."""
        self._lag_max_ms = lag_max_ms
        self.isr = frozenset(isr)
        """The committed ISR."""
        self.partition_epoch = partition_epoch
        self._known_end_offset = NOT_FETCHED
        """The leader's log end when the high watermark was last computed."""
        self.pending: IsrChange | None = None
        """The change that the controller has been asked for and has not answered."""
        self._followers = {
            replica: FollowerState(caught_up_ms=now_ms if replica in self.isr else NEVER)
            for replica in replicas
            if replica != node_id
        }

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The committed ISR and the followers that a pending change adds."""
        return self.isr if self.pending is None else self.isr.union(self.pending.isr)

    @property
    def followers(self) -> Mapping[int, FollowerState]:
        """The state of each follower, by its id."""
        return self._followers

    def replicas_changed(self, replicas: Collection[int]) -> None:
        """The controller has given the partition other replicas, in the same leader epoch."""
        for gone in self._followers.keys() - set(replicas):
            del self._followers[gone]
        for new in set(replicas) - self._followers.keys() - {self._node_id}:
            self._followers[new] = FollowerState(caught_up_ms=NEVER)

    # Fetches ----------------------------------------------------------------------------------------------------------

    def fetched(self, replica: int, fetch: FollowerFetch, *, leaders_end_offset: int, now_ms: int) -> bool:
        """A follower fetches, whose epoch and log agree with the leader's. False if the broker is no replica.

        A fetch that has waited while the follower was started again says nothing of the follower's present run.
        """
        state = self._followers.get(replica)
        if state is None:
            return False
        if NO_BROKER_EPOCH < fetch.broker_epoch < state.broker_epoch:
            return True
        if fetch.fetch_offset >= leaders_end_offset:
            state.caught_up_ms = max(state.caught_up_ms, now_ms)
        elif fetch.fetch_offset >= state.leaders_end_offset != NOT_FETCHED:
            state.caught_up_ms = max(state.caught_up_ms, state.fetched_ms)
        state.log_end_offset = fetch.fetch_offset
        state.log_start_offset = fetch.log_start_offset
        state.broker_epoch = fetch.broker_epoch
        state.fetched_ms = now_ms
        state.leaders_end_offset = leaders_end_offset
        state.has_stopped = False
        return True

    def stopped(self, replica: int, broker_epoch: int) -> None:
        """A follower does not fetch the partition any more, such as one whose disk has failed: it does not join the ISR
        before it fetches again. ``broker_epoch`` is that of the run that has fetched."""
        state = self._followers.get(replica)
        if state is not None and broker_epoch >= state.broker_epoch:
            state.has_stopped = True

    def high_watermark(
        self,
        *,
        leaders_end_offset: int,
        now_ms: int,
        min_isr: int,
        is_eligible: Callable[[int, int], bool],
    ) -> int | None:
        """The offset that all replicas have reached that count; None while too few are in sync for it to move.

        Args:
            leaders_end_offset: the end of this broker's log.
            now_ms: the monotonic time.
            min_isr: `min.insync.replicas`; a partition with fewer replicas needs all of them.
            is_eligible: whether the controller would take a broker (id, broker epoch) into the ISR.
        """
        if leaders_end_offset > self._known_end_offset:
            for state in self._followers.values():
                # It had everything up to now, whenever it has fetched: a fetch session leaves out what is unchanged.
                if state.log_end_offset >= self._known_end_offset != NOT_FETCHED:
                    state.caught_up_ms = max(state.caught_up_ms, now_ms)
            self._known_end_offset = leaders_end_offset
        if len(self.isr) < min(min_isr, len(self._followers) + 1):
            return None
        maximal = self.maximal_isr
        offset = leaders_end_offset
        for replica, state in self._followers.items():
            if state.log_end_offset < offset and (
                replica in maximal
                or (
                    not state.has_stopped
                    and state.is_caught_up(leaders_end_offset, now_ms, self._lag_max_ms)
                    and is_eligible(replica, state.broker_epoch)
                )
            ):
                offset = state.log_end_offset
        return max(offset, 0)

    # The ISR ----------------------------------------------------------------------------------------------------------

    def expand(
        self,
        *,
        own_broker_epoch: int,
        log_start_offset: int,
        high_watermark: int,
        leaders_end_offset: int,
        now_ms: int,
        is_eligible: Callable[[int, int], bool],
    ) -> IsrChange | None:
        """Ask for the followers that have come up to the high watermark, and have deleted what the leader has deleted.

        A follower that does not know yet where the leader's log starts would bring deleted records back if it were to
        lead next. (Kafka takes it.) A follower that has not fetched for `replica.lag.time.max.ms`, and lacks records,
        is not taken: the high watermark may stand where that follower was, since too few replicas are in sync.

        None if there is no such follower, or a change is pending.
        """
        least = max(high_watermark, self.epoch_start_offset)
        joining = [
            replica
            for replica, state in self._followers.items()
            if replica not in self.isr
            and not state.has_stopped
            and state.log_end_offset >= least
            and state.log_start_offset >= log_start_offset
            and (
                now_ms - state.fetched_ms <= self._lag_max_ms
                or state.is_caught_up(leaders_end_offset, now_ms, self._lag_max_ms)
            )
            and is_eligible(replica, state.broker_epoch)
        ]
        return self._ask({*self.isr, *joining}, own_broker_epoch) if joining else None

    def shrink(self, *, own_broker_epoch: int, leaders_end_offset: int, now_ms: int) -> IsrChange | None:
        """Ask to be rid of the followers that lag; None if there is none, or a change is pending."""
        lagging = {
            replica
            for replica, state in self._followers.items()
            if replica in self.isr and not state.is_caught_up(leaders_end_offset, now_ms, self._lag_max_ms)
        }
        return self._ask(set(self.isr - lagging), own_broker_epoch) if lagging else None

    def confirm(self, *, own_broker_epoch: int) -> IsrChange | None:
        """Ask for the ISR as it is: the controller learns that the leader has recovered from an unclean election."""
        return self._ask(self.isr, own_broker_epoch)

    def _ask(self, wanted: Collection[int], own_broker_epoch: int) -> IsrChange | None:
        if self.pending is not None:
            return None
        epochs = {
            replica: own_broker_epoch if replica == self._node_id else self._followers[replica].broker_epoch
            for replica in sorted(wanted)
            if replica == self._node_id or replica in self._followers
        }
        self.pending = IsrChange(epochs, self.partition_epoch)
        return self.pending

    def committed(self, isr: Collection[int], partition_epoch: int) -> bool:
        """The controller has another version of the partition, by its answer or its log. False for an old version."""
        if partition_epoch < self.partition_epoch:
            return False
        if partition_epoch > self.partition_epoch:
            self.pending = None
            self.isr = frozenset(isr)
            self.partition_epoch = partition_epoch
        return True

    def answered(self) -> None:
        """The controller has answered that the pending change changes nothing."""
        self.pending = None

    def refused(self) -> None:
        """The controller has refused the pending change for good: the committed ISR counts again."""
        self.pending = None
