"""Random requests to a share shard: what is replayed from its log is what it knows, also from the pruned log."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.coordinators.share.persister import SharePartitionKey, StateBatch
from broker.coordinators.share.requests import Delete, Initialize, Read, Resnapshot
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.share.harness import COLD_MS, TOPIC, Exchange

keys = st.builds(SharePartitionKey, st.sampled_from(["a", "b"]), st.just(TOPIC), st.integers(0, 1))
epochs = st.integers(0, 4)
offsets = st.integers(-1, 30)
batches = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, 30),
        st.integers(0, 5),
        st.sampled_from([0, 2, 4]),
        st.integers(0, 3),
    ),
    max_size=3,
)


class ShareStateWalk(RuleBasedStateMachine):
    """Leaders, group coordinators and writes that fail."""

    def __init__(self) -> None:
        super().__init__()
        self.exchange = Exchange(updates_per_snapshot=2)
        self.asked = 0

    def ask(self, request: object) -> None:
        self.asked += 1
        self.exchange.ask(request)  # type: ignore[arg-type]

    @rule(key=keys, epoch=epochs, start=offsets)
    def initialize(self, key: SharePartitionKey, epoch: int, start: int) -> None:
        self.ask(Initialize(key, epoch, start))

    @rule(key=keys, epoch=epochs)
    def read(self, key: SharePartitionKey, epoch: int) -> None:
        self.ask(Read(key, epoch))

    @rule(key=keys, state=epochs, leader=epochs, start=offsets, count=st.integers(-1, 9), written=batches)
    def write(
        self, key: SharePartitionKey, state: int, leader: int, start: int, count: int, written: list[StateBatch]
    ) -> None:
        self.ask(
            self.exchange.to_write(
                *written, key=key, state_epoch=state, leader_epoch=leader, start_offset=start, count=count
            )
        )

    @rule(key=keys)
    def delete(self, key: SharePartitionKey) -> None:
        self.ask(Delete(key))

    @rule(key=keys)
    def resnapshot(self, key: SharePartitionKey) -> None:
        self.exchange.clock.advance(COLD_MS)
        self.ask(Resnapshot(key))

    @rule()
    def hold(self) -> None:
        self.exchange.holds = True

    @rule()
    def acknowledge(self) -> None:
        self.exchange.holds = False
        self.exchange.acknowledge()

    @rule()
    def fail(self) -> None:
        self.exchange.fail(ErrorCode.NOT_ENOUGH_REPLICAS)

    @invariant()
    def the_log_says_what_the_shard_knows(self) -> None:
        live = self.exchange.shard.image
        assert self.exchange.replayed().by_key == live.by_key
        pruned = self.exchange.replayed(since=live.needed_since)
        # Fences and the count of updates may have been in what was pruned; all that is stored is there.
        assert {key: state[:9] for key, state in pruned.by_key.items()} == {
            key: state[:9] for key, state in live.by_key.items()
        }

    def teardown(self) -> None:
        self.acknowledge()
        assert len(self.exchange.answers) == self.asked, "every request has one answer"


ShareStateWalk.TestCase.settings = settings(deadline=None)
TestShareState = ShareStateWalk.TestCase
