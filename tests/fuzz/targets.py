"""The fuzzing targets: the entry points of the packages, with checks, seeds and the packages whose branches count."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import append, batches, decoders, frames, sasl, tls

FINDINGS = Path(__file__).resolve().parent / "findings"

AnyChange = Callable[[bytes, int], bytes]
"""The fuzzer's own mutation of some bytes, up to a length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One thing that any bytes may be given to."""

    name: str
    check: Callable[[bytes], None]
    """Raises if a promise is broken."""
    seeds: Callable[[], Iterator[bytes]]
    rooms: tuple[str, ...]
    most_bytes: int
    mutate: Callable[[bytes, int, int, AnyChange], bytes] | None = None
    """(data, most bytes, seed, any change): a mutation that knows the form; None: any bytes will do."""

    def findings(self) -> list[Path]:
        """What broke a promise once; each is replayed by the tests and is a seed of every run."""
        return sorted(path for path in (FINDINGS / self.name).glob("*") if path.is_file())


TARGETS = {
    target.name: target
    for target in (
        Target(
            name="frames",
            check=frames.check,
            seeds=frames.seeds,
            rooms=frames.PACKAGES,
            most_bytes=frames.MOST_BYTES,
            mutate=frames.mutate,
        ),
        Target(
            name="sasl",
            check=sasl.check,
            seeds=sasl.seeds,
            rooms=sasl.PACKAGES,
            most_bytes=sasl.MOST_BYTES,
            mutate=frames.mutate,
        ),
        Target(
            name="tls",
            check=tls.check,
            seeds=tls.seeds,
            rooms=tls.PACKAGES,
            most_bytes=tls.MOST_BYTES,
            mutate=tls.mutate,
        ),
        Target(
            name="decoders",
            check=decoders.check,
            seeds=decoders.seeds,
            rooms=decoders.PACKAGES,
            most_bytes=decoders.MOST_BYTES,
        ),
        Target(
            name="batches",
            check=batches.check,
            seeds=batches.seeds,
            rooms=batches.PACKAGES,
            most_bytes=batches.MOST_BYTES,
            mutate=batches.mutate,
        ),
        Target(
            name="append",
            check=append.check,
            seeds=append.seeds,
            rooms=append.PACKAGES,
            most_bytes=append.MOST_BYTES,
            mutate=append.mutate,
        ),
    )
}
