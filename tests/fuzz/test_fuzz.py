"""What the fuzzer does, without it: its findings are replayed, its seeds tried, and hypothesis damages them."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, AnyChange, Target

EXAMPLES = {"frames": 200, "sasl": 200, "tls": 200, "decoders": 600, "batches": 600, "append": 150}
FINDINGS = [pytest.param(target, path, id=path.name) for target in TARGETS.values() for path in target.findings()]
every_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@pytest.mark.parametrize(("target", "path"), FINDINGS)
def test_what_broke_a_promise_once_breaks_it_no_more(target: Target, path: Path) -> None:
    target.check(path.read_bytes())


@every_target
def test_every_seed_keeps_the_promises(target: Target) -> None:
    for seed in target.seeds():
        target.check(seed)


@every_target
def test_damaged_seeds_keep_the_promises(target: Target) -> None:
    seeds = list(target.seeds())
    damage = st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=5)), min_size=1, max_size=4)

    @settings(max_examples=EXAMPLES[target.name], deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(seeds), damage, st.integers(0, 2**32))
    def keeps(seed: bytes, damage: list[tuple[int, bytes]], chance: int) -> None:
        wild = bytearray(seed)
        for position, replacement in damage:
            wild[position : position + len(replacement)] = replacement
        target.check(bytes(wild))
        if target.mutate is not None:
            target.check(target.mutate(seed, target.most_bytes, chance, _any_change(chance)))

    keeps()


@every_target
def test_any_bytes_keep_the_promises(target: Target) -> None:
    @settings(max_examples=EXAMPLES[target.name], deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=200))
    def keeps(data: bytes) -> None:
        target.check(data)

    keeps()


def _any_change(seed: int) -> AnyChange:
    """A mutation of bytes as the fuzzer makes them."""
    chance = random.Random(seed)

    def change(data: bytes, most_bytes: int) -> bytes:
        wild = bytearray(data)
        at = chance.randrange(len(wild) + 1)
        match chance.randrange(3):
            case 0:
                wild[at : at + 1] = chance.randbytes(chance.randrange(1, 9))
            case 1:
                del wild[at : at + chance.randrange(1, 9)]
            case _:
                wild[at : at + 4] = chance.randbytes(4)
        return bytes(wild[:most_bytes])

    return change
