"""The known name that an unknown, perhaps misspelt, name is most similar to."""

from collections.abc import Iterable
from typing import Final

ALIKE: Final = 0.6
"""The least similarity of two names, from 0 to 1."""


def most_similar(name: str, known: Iterable[str], *, least: float = ALIKE) -> str | None:
    """The name of ``known`` that is most like ``name``; None if none is similar enough."""
    from difflib import get_close_matches  # imported late: a start with right names does not need it

    nearest = get_close_matches(name, list(known), n=1, cutoff=least)
    return nearest[0] if nearest else None
