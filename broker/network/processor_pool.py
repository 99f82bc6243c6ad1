"""The network processors (`num.network.threads`), whose number may change while the broker runs."""

import asyncio
from collections.abc import Callable

from broker.network.processor import Processor


class ProcessorPool:
    """Makes processors, runs them, and drains those that are too many."""

    def __init__(self, make: Callable[[int], Processor], size: int) -> None:
        """``make`` makes the processor of an index."""
        self._make = make
        self._group: asyncio.TaskGroup | None = None
        self._draining: list[Processor] = []
        self.processors = [make(index) for index in range(size)]
        """The processors that get new connections. Acceptors hold this very list."""

    def resize(self, size: int) -> None:
        """Have ``size`` processors from now on.

        A processor too many reads no more requests, answers those under way and closes its connections, as Kafka does;
        their clients connect again.
        """
        while len(self.processors) > size:
            surplus = self.processors.pop()
            if self._group is None:
                surplus.close()
            else:
                self._draining.append(surplus)
                surplus.stop_reading()
                self._group.create_task(self._drain(surplus), name=f"processor-{surplus.index}-draining")
        while len(self.processors) < size:
            processor = self._make(len(self.processors))
            self.processors.append(processor)
            if self._group is not None:
                self._run(processor, self._group)

    async def run(self) -> None:
        """Run every processor until `close`. What goes wrong in one of them ends all and is raised here."""
        async with asyncio.TaskGroup() as self._group:
            for processor in self.processors:
                self._run(processor, self._group)

    def stop_reading(self) -> None:
        """Take no more requests. Every connection closes when its last answer is sent."""
        for processor in self.processors:
            processor.stop_reading()

    async def drained(self) -> None:
        """Wait until every connection is closed."""
        for processor in (*self.processors, *self._draining):
            await processor.drained()

    def close(self) -> None:
        """Close every connection, whatever is under way, and let `run` return."""
        for processor in (*self.processors, *self._draining):
            processor.close()

    def _run(self, processor: Processor, group: asyncio.TaskGroup) -> None:
        group.create_task(processor.run(), name=f"processor-{processor.index}")

    async def _drain(self, processor: Processor) -> None:
        await processor.drained()
        processor.close()
        self._draining.remove(processor)
