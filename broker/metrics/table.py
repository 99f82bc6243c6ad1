"""Tables: families with a series for each topic or partition, possibly tens of thousands, written line by line.

The library takes 4 µs for a line, and holds the loop for all lines. Here the labels of a row are written once for all
families, and the loop may turn after a few lines (docs/decisions/metrics.md).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from broker.metrics.series import Family, Kind

LINES_A_PIECE: Final = 250
"""Lines that are written in one turn of the loop: a tenth of a millisecond."""


class Row(Protocol):
    """The subject of one line in every family of a table: a topic, partition or group."""

    @property
    def labels(self) -> str:
        """The labels of the row, as `label_text` writes them."""


class Column(NamedTuple):
    """One family of a table, and its value for a row."""

    family: Family
    value: Callable[[Any], float | None]
    """Gives the value for a row; None: the row has no line in this family."""


class Table(NamedTuple):
    """Families over the same rows."""

    columns: Sequence[Column]
    rows: Callable[[], Iterable[Row]]
    """Gives the present rows."""


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    """Labels as all exposition formats write them."""
    pairs = ",".join([f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)])
    return f"{{{pairs}}}"


def write(table: Table, *, is_openmetrics: bool) -> Iterator[bytes]:
    """The families in pieces of text, a few lines each."""
    rows = list(table.rows())
    for family, value in table.columns:
        name = family.name
        text = _header(family, is_openmetrics=is_openmetrics)
        for first in range(0, len(rows), LINES_A_PIECE):
            text += "".join(
                [
                    f"{name}{row.labels} {number}\n"
                    for row in rows[first : first + LINES_A_PIECE]
                    if (number := value(row)) is not None
                ]
            )
            yield text.encode()
            text = ""


def _header(family: Family, *, is_openmetrics: bool) -> str:
    name, kind = family.name, family.kind.value
    if is_openmetrics and family.kind is Kind.COUNTER:
        name = name.removesuffix("_total")
    elif not is_openmetrics and family.kind is Kind.UNKNOWN:
        kind = "untyped"
    return f"# HELP {name} {family.help}\n# TYPE {name} {kind}\n"


def _escaped(text: str) -> str:
    if "\\" not in text and '"' not in text and "\n" not in text:
        return text
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
