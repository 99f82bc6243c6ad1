"""Imports without OpenSSL: of asyncio and uvloop always, of a library where Python was built without it.

asyncio and uvloop import OpenSSL for TLS connections of their own, which this broker does not have. OpenSSL is an
eighth of an idle broker's memory and a twentieth of its start (bench: start, imports). asyncio works without `ssl`, as
on a Python that was built so. uvloop imports names of `ssl` that it does not use without TLS: it gets stand-ins. A
later import of `ssl` gets the real module.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _StandIn(ModuleType):
    """A module that has every name: names in capitals are numbers, all others classes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return 0 if name.isupper() else type(name, (Exception,), {})


def import_event_loops() -> None:
    """Import asyncio, and uvloop if it is there; nothing happens where one of them, or `ssl`, is imported already.

    Connections of asyncio and uvloop with TLS cannot be made in such a process: asyncio would report that there is no
    ssl module, and uvloop that a context is no context. `broker.network.tls_transport` needs neither of them.
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


@contextmanager
def stand_in_where_ssl_is_missing() -> Iterator[None]:
    """On a Python that was built without OpenSSL, imports in this context get a stand-in for ``ssl``.

    prometheus-client imports `ssl` for a server of its own, which this broker does not use.
    """
    try:
        import ssl  # noqa: F401
    except ImportError:
        stand_in = _StandIn("ssl")
    else:
        yield
        return
    sys.modules["ssl"] = stand_in
    try:
        yield
    finally:
        del sys.modules["ssl"]
