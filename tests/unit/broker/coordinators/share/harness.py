"""A share shard without a broker: its records go into a list, and are acknowledged when the test says so."""

from broker.coordinators.share.image import ShareImage
from broker.coordinators.share.persister import NOT_COUNTED, SharePartitionKey, ShareState, StateBatch
from broker.coordinators.share.records import ShareResult, decode, encode
from broker.coordinators.share.requests import (
    Delete,
    Initialize,
    Read,
    ShardRequest,
    StateAnswer,
    Summarize,
    Write,
)
from broker.coordinators.share.settings import ShareSettings
from broker.coordinators.share.shard import ShareShard
from broker.coordinators.share.stats import ShareStats
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode
from protocol.records.share_state import ShareStateRecord

TOPIC = bytes(range(16))
KEY = SharePartitionKey("workers", TOPIC, 0)
PARTITIONS = 3
COLD_MS = 300_000


class Exchange:
    """The shard, the log behind it, and the answers that it has given."""

    def __init__(self, updates_per_snapshot: int = 3) -> None:
        self.settings = ShareSettings(updates_per_snapshot=updates_per_snapshot, cold_snapshot_interval_ms=COLD_MS)
        self.clock = ManualClock()
        self.topics = {TOPIC: PARTITIONS}
        self.stats = ShareStats()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.held: list[ShareResult] = []
        self.holds = False
        """Whether records wait for `acknowledge`."""
        self.answers: list[StateAnswer] = []
        self.shard = ShareShard(
            settings=self.settings,
            clock=self.clock,
            stats=self.stats,
            submit=self._submit,
            has_partition=lambda topic_id, index: index < self.topics.get(topic_id, 0),
        )

    def _submit(self, result: ShareResult) -> None:
        self.held.append(result)
        if not self.holds:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Everything that is held is in the log."""
        held, self.held = self.held, []
        for result in held:
            for record in result.records:
                offset = len(self.log)
                self.log.append(encode(record))
                self.shard.replay(record, offset=offset)
            result.then(ErrorCode.NONE)

    def fail(self, code: ErrorCode) -> None:
        """Nothing of what is held is in the log."""
        held, self.held = self.held, []
        for result in held:
            result.then(code)

    # Requests

    def ask(self, request: ShardRequest) -> StateAnswer | None:
        """The answer, None while there is none."""
        answers: list[StateAnswer] = []

        def reply(answer: StateAnswer) -> None:
            answers.append(answer)
            self.answers.append(answer)

        self.shard.ask(request, reply)
        return answers[0] if answers else None

    def code(self, request: ShardRequest) -> ErrorCode:
        answer = self.ask(request)
        assert answer is not None
        return answer.code

    def initialize(self, start_offset: int = 0, *, state_epoch: int = 1, key: SharePartitionKey = KEY) -> ErrorCode:
        return self.code(Initialize(key, state_epoch, start_offset))

    def read(self, leader_epoch: int = 0, *, key: SharePartitionKey = KEY) -> ShareState:
        answer = self.ask(Read(key, leader_epoch))
        assert answer is not None
        assert answer.state is not None, answer
        return answer.state

    def summary(self, *, key: SharePartitionKey = KEY) -> ShareState:
        answer = self.ask(Summarize(key, 0))
        assert answer is not None
        assert answer.state is not None, answer
        return answer.state

    def write(
        self,
        *batches: StateBatch,
        start_offset: int = 0,
        count: int = NOT_COUNTED,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        key: SharePartitionKey = KEY,
    ) -> ErrorCode:
        return self.code(self.to_write(*batches, start_offset=start_offset, count=count, state_epoch=state_epoch,
                                       leader_epoch=leader_epoch, key=key))  # fmt: skip

    def to_write(
        self,
        *batches: StateBatch,
        start_offset: int = 0,
        count: int = NOT_COUNTED,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        key: SharePartitionKey = KEY,
    ) -> Write:
        return Write(key, ShareState(state_epoch, leader_epoch, start_offset, count, batches))

    def delete(self, *, key: SharePartitionKey = KEY) -> ErrorCode:
        return self.code(Delete(key))

    # The log

    @property
    def records(self) -> list[ShareStateRecord]:
        found = [decode(*pair) for pair in self.log]
        return [record for record in found if isinstance(record, ShareStateRecord)]

    def replayed(self, since: int = 0) -> ShareImage:
        """The image that the log from ``since`` on gives."""
        image = ShareImage(self.settings.updates_per_snapshot)
        for offset, pair in enumerate(self.log):
            if offset >= since:
                image.replay(decode(*pair), offset)
        return image
