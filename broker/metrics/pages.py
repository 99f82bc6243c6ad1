"""Pages of all metrics, made in slices of a millisecond. Requests that come at the same time share one page."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic_ns
from typing import Final

from broker.metrics import collector, table
from broker.metrics.collector import Format, format_for
from broker.metrics.series import Source
from broker.metrics.table import Table

SLICE_NS: Final = 1_000_000
"""How long a page holds the loop at a time."""


class Page:
    """A page of metrics as it is sent."""

    __slots__ = ("content_type", "pieces")

    def __init__(self, content_type: str, pieces: Sequence[bytes]) -> None:
        self.content_type = content_type
        self.pieces = pieces
        """The pieces of the page, in order. They are not joined, since a page may have ten megabytes."""


class Pages:
    """Makes pages of metrics."""

    def __init__(
        self, survey: Callable[[], Iterator[None]], *, sources: Iterable[Source], tables: Sequence[Table]
    ) -> None:
        """``survey`` is run before a page is written, since ``sources`` and ``tables`` read its result."""
        self._survey = survey
        self._registry = collector.make_registry(sources)
        self._tables = tables
        self._under_way: dict[str, asyncio.Task[Page]] = {}
        """Pages that are being made, by content type."""

    async def page(self, accept: str) -> Page:
        """A page in the format for the Accept header ``accept``; the page that is being made, if there is one."""
        format = format_for(accept)
        making = self._under_way.get(format.content_type)
        if making is None:
            making = asyncio.create_task(self._make(format), name="metrics page")
            self._under_way[format.content_type] = making
            making.add_done_callback(lambda _: self._under_way.pop(format.content_type))
        # A client that goes away meanwhile must not cancel the page for the others.
        return await asyncio.shield(making)

    async def close(self) -> None:
        """Cancel the pages that are being made."""
        for making in tuple(self._under_way.values()):
            making.cancel()
            await asyncio.wait((making,))

    async def _make(self, format: Format) -> Page:
        pieces: list[bytes] = []
        began_ns = monotonic_ns()
        for piece in self._write(format):
            if piece:
                pieces.append(piece)
            if monotonic_ns() - began_ns > SLICE_NS:
                await asyncio.sleep(0)
                began_ns = monotonic_ns()
        return Page(format.content_type, pieces)

    def _write(self, format: Format) -> Iterator[bytes]:
        for _ in self._survey():
            yield b""
        yield from collector.write(self._registry, format)
        for one in self._tables:
            yield from table.write(one, is_openmetrics=format.is_openmetrics)
        yield format.end
