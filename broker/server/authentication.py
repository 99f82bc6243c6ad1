"""Authentication: the gates of all listeners with SASL. Imported where there is such a listener only."""

import os
from collections.abc import Callable, Mapping

from broker.metadata.cache import MetadataCache
from broker.request.gate import Gate
from broker.runtime.clock import Clock
from broker.runtime.worker_thread import MakeWorker
from broker.security.sasl.gate import SaslGate
from broker.security.sasl.mechanisms import SaslListener
from config.broker_settings import BrokerSettings
from config.sasl import sasl_settings


class CannotAuthenticate(Exception):
    """Why clients could not authenticate, in one sentence."""


class Authentication:
    """What makes the gates of new connections, and what these share."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        metadata: MetadataCache,
        clock: Clock,
        make_worker: MakeWorker,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Raises `CannotAuthenticate`."""
        self._listeners: dict[str, SaslListener] = {}
        for listener in settings.listeners:
            if not listener.has_sasl:
                continue
            try:
                self._listeners[listener.name] = SaslListener(
                    sasl_settings(listener, settings),
                    metadata=metadata,
                    clock=clock,
                    random_bytes=random_bytes,
                    make_worker=make_worker,
                )
            except ImportError as error:
                raise CannotAuthenticate(
                    f"the listener {listener.name} has OAUTHBEARER, and its tokens cannot be checked ({error}): "
                    "install ottla[oauthbearer]"
                ) from error

    @property
    def gates(self) -> Mapping[str, Callable[[], Gate]]:
        """What makes the gate of a new connection, by listener."""
        return {name: _maker(listener) for name, listener in self._listeners.items()}

    def start(self) -> None:
        """Fetch the keys of tokens from now on."""
        for listener in self._listeners.values():
            for source in listener.token_sources:
                source.start()

    async def stop(self) -> None:
        """Fetch no more."""
        for listener in self._listeners.values():
            for source in listener.token_sources:
                await source.stop()


def _maker(listener: SaslListener) -> Callable[[], Gate]:
    return lambda: SaslGate(listener)
