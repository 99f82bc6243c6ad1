"""The errors of the pipeline: each has a message for users and the exit code of the command that ends with it."""

from typing import ClassVar, Final, NamedTuple

DONE: Final = 0
DAMAGED: Final = 1
"""The exit code for damaged data: a damaged log, an archive with gaps."""
NOT_DONE: Final = 2
"""The exit code where the data are sound but the work could not be done: bad usage, no Java, nowhere to write to."""


class PipelineError(Exception):
    """The base of all errors that the pipeline raises on purpose; `str(error)` is a message for users."""

    exit_code: ClassVar[int] = NOT_DONE


class BrokerError(PipelineError):
    """The broker cannot be reached, or it refused a request."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        """Kafka's error code (librdkafka's own codes are below 0); None where no answer came."""

    def __reduce__(self) -> tuple[type["BrokerError"], tuple[str, int | None]]:
        return type(self), (str(self), self.code)


class RecordsGone(PipelineError):
    """Records that were to be read have been deleted in the meantime, by retention or with their topic."""


class Damage(NamedTuple):
    """Bytes in a segment file that are no whole record batch, or a batch whose header contradicts its content."""

    path: str
    position: int
    """The position in the file, in bytes."""
    offset: int
    """The first offset that cannot be read."""
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.path} at {self.position} (offset {self.offset}): found {self.found}, expected {self.expected}"


class DamagedLog(PipelineError):
    """A segment file has damaged batches."""

    exit_code = DAMAGED

    def __init__(self, damage: Damage) -> None:
        super().__init__(str(damage))
        self.damage = damage

    def __reduce__(self) -> tuple[type["DamagedLog"], tuple[Damage]]:
        # Tasks raise it in another process than the one that reports it.
        return type(self), (self.damage,)
