"""The one list of what is told: each subject has a file, and a line here."""

from collections.abc import Iterable

from broker.metrics.loading import Loading
from broker.metrics.pages import Pages
from broker.metrics.rooms import Rooms
from broker.metrics.series import Source
from broker.metrics.table import Table


def make_pages(rooms: Rooms) -> Pages:
    """Everything that can be told of ``rooms``."""
    sources: tuple[Source, ...] = (Loading(rooms),)

    def tables() -> Iterable[Table]:
        return ()

    return Pages(lambda: sources, tables)
