"""Selecting the topics that a command works on, by name and by pattern."""

import difflib
import re
from collections.abc import Collection, Sequence
from typing import Final

from pipeline.errors import PipelineError

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def chosen_topics(
    known: Collection[str], names: Sequence[str], pattern: str | None, data_dirs: Sequence[str]
) -> list[str]:
    """From the topics ``known`` of `data_dirs`, those with these names, and those whose whole name matches the pattern;
    all topics without names and pattern.

    Internal topics have to be named. Raises PipelineError for a name that no topic has.
    """
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise PipelineError(
                f"there is no topic {name} in {', '.join(data_dirs)}" + (f"; did you mean {near[0]}?" if near else "")
            )
    chosen = set(names)
    if pattern is not None or not names:
        try:
            expression = re.compile(".*" if pattern is None else pattern)
        except re.error as error:
            raise PipelineError(f"the pattern {pattern!r} cannot be read: {error}") from None
        chosen |= {name for name in known if name not in INTERNAL_TOPICS and expression.fullmatch(name)}
    return sorted(chosen)
