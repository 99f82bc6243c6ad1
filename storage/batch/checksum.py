"""CRC-32C, by the processor's own instruction where it has one.

Only the extension module inside the `crc32c` package is loaded: the package around it reads its own version with
`importlib.metadata` and brings a command line, which would cost every start 12 ms (bench: start).
"""

import importlib.util
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Final, cast

from storage.files import Buffer

_PACKAGE: Final = "crc32c"
_EXTENSION: Final = "crc32c._crc32c"


def _load() -> Callable[[Buffer], int]:
    package = importlib.util.find_spec(_PACKAGE)
    locations = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec(_EXTENSION, locations) if locations else None
    if spec is None or spec.loader is None:
        # A package laid out in another way still has the function under its public name.
        return cast("Callable[[Buffer], int]", importlib.import_module(_PACKAGE).crc32c)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Callable[[Buffer], int]", module.crc32c)


crc32c: Final[Callable[[Buffer], int]] = _load()
"""The CRC-32C of a buffer; Castagnoli's polynomial, as the format of record batches asks for."""
