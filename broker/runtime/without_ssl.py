"""asyncio and uvloop without OpenSSL, which both import for connections that this broker has not.

It is an eighth of an idle broker's memory and a twentieth of its start (bench: start, imports). asyncio does without it
of its own accord, as on a Python that was built so. uvloop takes names out of `ssl` when it is imported, which nobody
asks for afterwards: it gets stand-ins. Who imports `ssl` later gets the real one.
"""

import sys
from types import ModuleType
from typing import Any


class _StandIn(ModuleType):
    """Has each name that is asked for: numbers in capitals, classes else."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return 0 if name.isupper() else type(name, (Exception,), {})


def import_event_loops() -> None:
    """Import asyncio, and uvloop if it is there; nothing happens where one of them, or `ssl`, is imported already.

    A process that is to serve TLS must not call this: asyncio would say that there is no ssl module, and uvloop that a
    context is none.
    """
    modules: dict[str, Any] = sys.modules
    if not modules.keys().isdisjoint({"asyncio", "ssl", "uvloop"}):
        return
    modules["ssl"] = None
    try:
        import asyncio  # noqa: F401

        modules["ssl"] = _StandIn("ssl")
        import uvloop  # noqa: F401
    except ImportError:
        pass  # uvloop has no wheel for this platform; the command line chooses another loop
    finally:
        del modules["ssl"]
