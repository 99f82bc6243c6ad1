"""Where a run's chance comes from: one stream of random numbers for each subject, all of them from one seed.

So a change in one subject (another delay on the network) leaves the draws of the others as they were.
"""

from random import Random


class Chance:
    """The random numbers of one run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def of(self, subject: str) -> Random:
        """The stream of a subject; asked twice, it begins anew."""
        # A text is hashed by SHA-512, which is the same in every process.
        return Random(f"{self.seed} {subject}")


class SeededIds:
    """`broker.runtime.clock.Ids` by seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def uuid(self) -> bytes:
        # The first bit is not set: as text the id begins with no dash.
        return bytes([self._random.randrange(128), *self._random.randbytes(15)])
