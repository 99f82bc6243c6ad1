"""Importing our packages in a Spark worker, without hiding the user's packages of the same names.

A Spark worker also runs functions of the user, who may have a `config` or `pipeline` of his own. So our packages are on
the import path only while a function of ours runs.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

PACKAGES: Final = frozenset({"broker", "config", "pipeline", "protocol", "storage"})

_HERE: Final = Path(__file__).resolve().parents[1]
# A wheel has them inside of `ottla`; packages beside it with these names are the user's.
_PLACE: Final = str(_HERE / "ottla" if (_HERE / "ottla" / "pipeline").is_dir() else _HERE)

_ours: dict[str, ModuleType] = {}


@contextmanager
def our_packages() -> Iterator[None]:
    """A context in which `pipeline`, `storage` and the others are our packages. May be nested."""
    if _are_here():
        yield
        return
    theirs = _taken_away()
    sys.modules.update(_ours)
    sys.path.insert(0, _PLACE)
    try:
        yield
    finally:
        sys.path.remove(_PLACE)
        _ours.update(_taken_away())
        sys.modules.update(theirs)


def _are_here() -> bool:
    pipeline = sys.modules.get("pipeline")
    return pipeline is not None and list(pipeline.__path__) == [f"{_PLACE}/pipeline"]


def _taken_away() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
    return {name: sys.modules.pop(name) for name in names}
