"""What somebody may have meant who wrote a name that is not known."""

from collections.abc import Iterable
from typing import Final

ALIKE: Final = 0.6
"""How alike two names must be, of 1."""


def most_similar(name: str, known: Iterable[str], *, least: float = ALIKE) -> str | None:
    """The one of ``known`` that is most like ``name``; None if none is."""
    from difflib import get_close_matches  # not at a start, where names are right

    nearest = get_close_matches(name, list(known), n=1, cutoff=least)
    return nearest[0] if nearest else None
