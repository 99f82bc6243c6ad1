"""Purgatory: waiting requests as operations that complete exactly once, by an event or by their deadline."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable

from broker.runtime.timing_wheel import Timer, TimingWheel


class DelayedOperation(ABC):
    """A request that cannot be answered yet. A subclass decides when it can be (`try_complete`) and answers
    (`on_complete`).

    A completed operation may stay under keys of a purgatory for a while: `on_complete` drops large objects.
    """

    __slots__ = ("_purgatory", "_timer", "is_completed")

    def __init__(self) -> None:
        self._purgatory: Purgatory | None = None
        self._timer: Timer | None = None
        self.is_completed = False

    @abstractmethod
    def try_complete(self) -> bool:
        """Return ``self.complete()`` if the operation can complete, else False. Looks at all that it waits for."""

    def try_complete_after(self, key: Hashable) -> bool:
        """`try_complete` after an event of a watched key. An operation that waits for many things overrides it, and
        looks at those that ``key`` stands for: a change may have an event for each of them."""
        return self.try_complete()

    @abstractmethod
    def on_complete(self) -> None:
        """Answer the request. Runs exactly once."""

    def on_expiration(self) -> None:  # noqa: B027 - most have nothing more to do
        """Runs after `on_complete` if the deadline has completed the operation."""

    def on_failure(self, error: Exception) -> None:
        """Answer with the error that `try_complete` or `on_complete` has raised. Runs once. It must not raise the error
        again: that would reach the request that caused the event."""
        raise error

    def complete(self) -> bool:
        """Complete now, without asking `try_complete`. True for the one call that completes the operation."""
        if self.is_completed:
            return False
        self.is_completed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._purgatory is not None:
            self._purgatory._left()
        self.on_complete()
        return True


class PurgatoryStats:
    """The counters of a purgatory."""

    __slots__ = ("completed", "expired", "pending", "watched")

    def __init__(self) -> None:
        self.pending = 0
        """Operations that wait (Kafka: NumDelayedOperations)."""
        self.watched = 0
        """Entries under all keys, those of completed operations included (Kafka: PurgatorySize)."""
        self.completed = 0
        """Operations that have waited and are complete, expired ones included."""
        self.expired = 0


class Purgatory:
    """The waiting operations of one kind, under the keys whose events may complete them.

    A completed operation stays under its other keys until one of these has an event; once more than
    ``purge_interval`` operations have completed since the last time, all keys are purged.
    """

    def __init__(self, wheel: TimingWheel, *, purge_interval: int = 1000) -> None:
        self._wheel = wheel
        self._purge_interval = purge_interval
        self._watchers: dict[Hashable, list[DelayedOperation]] = {}
        self._completed_since_purge = 0
        self._is_closed = False
        self.stats = PurgatoryStats()

    @property
    def is_closed(self) -> bool:
        """Whether nothing waits here any more: the broker stops."""
        return self._is_closed

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int) -> bool:
        """Complete ``operation`` if it can, else let it wait for an event of one of ``keys``, for ``timeout_ms`` at
        most. True if it is complete."""
        if self._attempt(operation):
            return True
        if timeout_ms <= 0:
            self._expire(operation)
            return True
        self.wait(operation, keys, timeout_ms)
        # Try again: an event that the first attempt has caused did not find the operation here.
        return self._attempt(operation)

    def wait(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int) -> None:
        """`watch` for an operation of which it is known that it cannot complete yet; ``timeout_ms`` is above 0."""
        if self._is_closed:
            self._expire(operation)
            return
        operation._purgatory = self
        self.stats.pending += 1
        for key in keys:
            watchers = self._watchers.get(key)
            if watchers is None:
                self._watchers[key] = [operation]
            elif watchers[-1].is_completed:
                watchers[-1] = operation  # most often the request that the same client has sent before
                continue
            else:
                watchers.append(operation)
            self.stats.watched += 1
        operation._timer = self._wheel.add_after(timeout_ms, lambda: self._expire(operation))
        if self._completed_since_purge > self._purge_interval:
            self.purge()

    def holds(self, key: Hashable) -> bool:
        """Whether an operation waits for an event of ``key``."""
        return not all(operation.is_completed for operation in self._watchers.get(key, ()))

    def check(self, key: Hashable) -> int:
        """An event of ``key``: complete the operations that can complete now, and return how many did."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed = 0
        # A copy: completing an operation may check or watch this key again.
        for operation in tuple(watchers):
            if not operation.is_completed and self._attempt_after(key, operation):
                completed += 1
        self._sweep(key, watchers)
        return completed

    def close(self) -> None:
        """The broker stops: complete every operation as if its deadline had passed, and later operations at once."""
        self._is_closed = True
        self.expire_all()

    def expire_all(self) -> None:
        """Complete every operation as if its deadline had passed."""
        for watchers in tuple(self._watchers.values()):
            for operation in tuple(watchers):
                self._expire(operation)
        self.purge()

    def purge(self) -> None:
        """Drop the completed operations under all keys."""
        self._completed_since_purge = 0
        for key, watchers in tuple(self._watchers.items()):
            self._sweep(key, watchers)

    def _attempt(self, operation: DelayedOperation) -> bool:
        try:
            return operation.is_completed or operation.try_complete()
        except Exception as error:  # noqa: BLE001 - see on_failure
            self._fail(operation, error)
            return True

    def _attempt_after(self, key: Hashable, operation: DelayedOperation) -> bool:
        try:
            return operation.try_complete_after(key)
        except Exception as error:  # noqa: BLE001 - see on_failure
            self._fail(operation, error)
            return True

    def _expire(self, operation: DelayedOperation) -> None:
        try:
            if operation.complete():
                self.stats.expired += 1
                operation.on_expiration()
        except Exception as error:  # noqa: BLE001 - see on_failure
            self._fail(operation, error)

    def _fail(self, operation: DelayedOperation, error: Exception) -> None:
        if not operation.is_completed:
            operation.is_completed = True
            if operation._timer is not None:
                operation._timer.cancel()
            if operation._purgatory is not None:
                self._left()
        operation.on_failure(error)

    def _left(self) -> None:
        self.stats.pending -= 1
        self.stats.completed += 1
        self._completed_since_purge += 1

    def _sweep(self, key: Hashable, watchers: list[DelayedOperation]) -> None:
        before = len(watchers)
        watchers[:] = [operation for operation in watchers if not operation.is_completed]
        self.stats.watched -= before - len(watchers)
        if not watchers and self._watchers.get(key) is watchers:
            del self._watchers[key]
