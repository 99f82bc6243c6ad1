"""The gates of listeners that ask clients who they are. Imported where there is such a listener only."""

import os
from collections.abc import Callable, Mapping

from broker.metadata.cache import MetadataCache
from broker.request.gate import Gate
from broker.runtime.clock import Clock
from broker.security.sasl.gate import SaslGate
from broker.security.sasl.mechanisms import SaslListener
from config.broker_settings import BrokerSettings
from config.sasl import sasl_settings


def make_gates(
    settings: BrokerSettings,
    *,
    metadata: MetadataCache,
    clock: Clock,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Mapping[str, Callable[[], Gate]]:
    """What makes the gate of a new connection, by the name of each listener that has SASL."""
    gates: dict[str, Callable[[], Gate]] = {}
    for listener in settings.listeners:
        if not listener.has_sasl:
            continue
        shared = SaslListener(
            sasl_settings(listener, settings), metadata=metadata, clock=clock, random_bytes=random_bytes
        )
        gates[listener.name] = lambda shared=shared: SaslGate(shared)  # type: ignore[misc]
    return gates
