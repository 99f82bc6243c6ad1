"""What was flushed is still there, whenever the power fails."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.logs import T
from tests.support.memory import directory_in_memory
from tests.support.power import PoweredStorage

LONG_RUN = "OTTLA_TEST_POWER_CUTS"
EXAMPLES = int(os.environ.get(LONG_RUN, "300"))

topics = st.sampled_from(("orders", "sales"))
seeds = st.integers(0, 10_000)
fractions = st.sampled_from((0.0, 0.3, 0.6, 0.9, 1.0))


class PowerCuts(RuleBasedStateMachine):
    """Everything that happens to a data directory, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.home = TemporaryDirectory(prefix="power-", dir=directory_in_memory())
        self.storage = PoweredStorage(Path(self.home.name))
        self.storage.create("orders")

    def teardown(self) -> None:
        self.storage._let_go()
        self.home.cleanup()

    @rule(topic=topics)
    def create(self, topic: str) -> None:
        self.storage.create(topic)

    @rule(topic=topics)
    def delete(self, topic: str) -> None:
        self.storage.delete(topic)

    @rule(topic=topics, size=st.sampled_from((10, 40, 200)), count=st.integers(1, 3), later=st.integers(-3, 3))
    def append(self, topic: str, size: int, count: int, later: int) -> None:
        self.storage.append(topic, size=size, count=count, timestamp=T + later)

    @rule(topic=topics, size=st.sampled_from((10, 40, 200)), producer_id=st.sampled_from((7, 8)))
    def append_in_sequence(self, topic: str, size: int, producer_id: int) -> None:
        self.storage.append(topic, size=size, producer_id=producer_id)

    @rule(topic=topics, producer_id=st.sampled_from((20, 21)))
    def append_in_transaction(self, topic: str, producer_id: int) -> None:
        self.storage.append(topic, producer_id=producer_id, is_transactional=True)

    @rule(topic=topics, producer_id=st.sampled_from((20, 21)), commit=st.booleans())
    def end_transaction(self, topic: str, producer_id: int, commit: bool) -> None:
        self.storage.end_transaction(topic, producer_id, commit=commit)

    @rule(topic=topics)
    def roll(self, topic: str) -> None:
        self.storage.roll(topic)

    @rule(topic=topics)
    def flush(self, topic: str) -> None:
        self.storage.flush(topic)

    @rule(topic=topics)
    def flush_what_is_due(self, topic: str) -> None:
        self.storage.flush_what_is_due(topic)

    @rule(topic=topics, everything=st.booleans())
    def begin_flush(self, topic: str, everything: bool) -> None:
        self.storage.begin_flush(topic, everything=everything)

    @rule()
    def finish_flushes(self) -> None:
        self.storage.finish_flushes()

    @rule()
    def prepare_checkpoints(self) -> None:
        self.storage.prepare_checkpoints()

    @rule()
    def finish_checkpoints(self) -> None:
        self.storage.finish_checkpoints()

    @rule()
    def write_checkpoints(self) -> None:
        self.storage.write_checkpoints()

    @rule(topic=topics, fraction=fractions)
    def delete_records(self, topic: str, fraction: float) -> None:
        self.storage.delete_records(topic, fraction)

    @rule()
    def apply_retention(self) -> None:
        self.storage.apply_retention()

    @rule()
    def remove_files(self) -> None:
        self.storage.remove_files()

    @rule(topic=topics, fraction=fractions)
    def truncate(self, topic: str, fraction: float) -> None:
        self.storage.truncate(topic, fraction)

    @rule(topic=topics, offset=st.sampled_from((0, 5, 40)))
    def truncate_fully(self, topic: str, offset: int) -> None:
        self.storage.truncate_fully(topic, offset)

    @rule()
    def stop_and_start(self) -> None:
        self.storage.stop_and_start()

    @rule(seed=seeds)
    def stop_cut_power_and_start(self, seed: int) -> None:
        self.storage.stop_cut_power_and_start(seed)

    @rule()
    def kill_and_start(self) -> None:
        self.storage.kill_and_start()

    @rule(seed=seeds)
    def cut_power_and_start(self, seed: int) -> None:
        self.storage.cut_power_and_start(seed)

    @rule(changes=st.integers(0, 40), seed=seeds)
    def lose_power_after(self, changes: int, seed: int) -> None:
        self.storage.lose_power_after(changes, seed)

    @rule(
        operation=st.sampled_from(("write", "truncate", "fsync", "rename", "remove", "make")),
        after=st.integers(0, 12),
        bytes_done=st.sampled_from((0, 30, 90)),
        seed=seeds,
    )
    def let_something_fail(self, operation: str, after: int, bytes_done: int, seed: int) -> None:
        self.storage.seed_of_loss = seed
        self.storage.files.fail(operation, after=after, bytes_done=bytes_done)

    @rule(room=st.sampled_from((0, 20, 150, 600)))
    def fill_up(self, room: int) -> None:
        self.storage.files.fill_up(room)

    @rule()
    def make_room(self) -> None:
        self.storage.files.make_room()

    @invariant()
    def all_that_is_known_agrees(self) -> None:
        if self.storage.is_running:
            self.storage.check()


@pytest.mark.timeout(0)
def test_what_was_flushed_is_there_whenever_the_power_fails() -> None:
    """``OTTLA_TEST_POWER_CUTS`` says how many examples, by chance then."""
    PowerCuts.TestCase.settings = settings(
        max_examples=EXAMPLES,
        stateful_step_count=50 if LONG_RUN in os.environ else 30,
        deadline=None,
        derandomize=LONG_RUN not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    PowerCuts.TestCase("runTest").runTest()
