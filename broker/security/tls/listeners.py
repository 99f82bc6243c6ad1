"""TlsListeners: the keys and certificates of all listeners with TLS, and how they change while the broker runs.

A connection keeps the certificate that it has begun with. New ones have what was read last. A change is tried first:
what cannot be used is refused, and what there is stays.
"""

import logging
import socket
from collections.abc import Callable, Mapping

from broker.network.tls_transport import RECEIVED_BYTES, TlsTransport
from broker.network.transport import Transport
from broker.network.transport_errors import HandshakeFailed
from broker.request.session import ANONYMOUS
from broker.runtime.clock import Clock
from broker.security.tls.certificate import parse_certificate
from broker.security.tls.context import Loaded, load
from broker.security.tls.der import MalformedDer
from broker.security.tls.key_material import Unusable
from config.broker_settings import BrokerSettings
from config.errors import SettingsError
from config.listeners import Listener
from config.principal_rules import name_of
from config.tls import TlsSettings, texts_in_force, tls_settings

log = logging.getLogger(__name__)

_USER = "User:"
_MS = 1000


class TlsListener:
    """One listener. ``loaded`` is None until `TlsListeners.open` has read its files."""

    def __init__(self, listener: Listener, settings: TlsSettings) -> None:
        self.listener = listener
        self.settings = settings
        self.loaded: Loaded | None = None
        self._scratch = memoryview(bytearray(RECEIVED_BYTES))

    def transport_of(self, accepted: socket.socket) -> Transport:
        """The transport of a new connection. Raises `OSError`."""
        assert self.loaded is not None, "a listener is opened before it accepts"
        return TlsTransport(accepted, self.loaded.context, self.principal_of, self._scratch)

    def principal_of(self, certificate: bytes | None) -> str:
        """Who a client is by its certificate. Raises `HandshakeFailed`."""
        if certificate is None:
            return ANONYMOUS
        try:
            subject = parse_certificate(certificate).subject
        except MalformedDer as reason:
            raise HandshakeFailed(f"its certificate cannot be read: {reason}") from None
        name = name_of(subject, self.settings.principal_rules)
        if name is None:
            raise HandshakeFailed(f"no rule of ssl.principal.mapping.rules is for {subject}")
        return _USER + name


class TlsListeners:
    """All listeners with TLS of one broker."""

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        """No file is read yet."""
        self._static = settings.given
        self._clock = clock
        self._listeners = {
            listener.name: TlsListener(listener, tls_settings(listener, settings.given))
            for listener in settings.listeners
            if listener.has_tls
        }

    @property
    def transports(self) -> Mapping[str, Callable[[socket.socket], Transport]]:
        """What makes the transports of new connections, by listener."""
        return {name: one.transport_of for name, one in self._listeners.items()}

    @property
    def certified(self) -> frozenset[str]:
        """The listeners whose clients have to show a certificate."""
        return frozenset(name for name, one in self._listeners.items() if one.settings.client_auth == "required")

    def expiry_s(self) -> dict[str, float]:
        """When the certificate of each listener expires, as Unix time."""
        return {
            name: one.loaded.certificate.not_after_ms / _MS
            for name, one in self._listeners.items()
            if one.loaded is not None
        }

    def open(self, dynamic: Mapping[str, str]) -> None:
        """Read the files of all listeners for the first time; ``dynamic`` has the dynamic texts of this broker. Raises
        `Unusable`."""
        texts = texts_in_force(self._static, dynamic)
        for one in self._listeners.values():
            try:
                settings = tls_settings(one.listener, texts)
            except SettingsError as error:
                raise Unusable(str(error)) from None
            one.settings, one.loaded = settings, load(settings, self._clock.now_ms())

    def check(self, dynamic: Mapping[str, str]) -> None:
        """Try a change of the dynamic texts, with the files as they are now. Raises `SettingsError`."""
        for one, _, _ in self._changes(dynamic):
            log.debug("the keys or certificates of %s can change", one.listener.name)

    def reconfigure(self, dynamic: Mapping[str, str]) -> None:
        """Take what the texts and files are now. What cannot be used is not taken."""
        try:
            for one, settings, loaded in self._changes(dynamic):
                one.settings, one.loaded = settings, loaded
                log.info(
                    "listener %s has new keys or certificates: %s, which expires at %d",
                    one.listener.name,
                    loaded.certificate.subject,
                    loaded.certificate.not_after_ms // _MS,
                )
        except SettingsError as error:
            log.error("keys and certificates stay as they were: %s", error)

    def _changes(self, dynamic: Mapping[str, str]) -> list[tuple[TlsListener, TlsSettings, Loaded]]:
        """The listeners whose keys or certificates are others now. Raises `SettingsError`."""
        texts = texts_in_force(self._static, dynamic)
        changes = []
        for one in self._listeners.values():
            before = one.loaded
            if before is None:
                continue
            settings = tls_settings(one.listener, texts)
            try:
                loaded = load(settings, self._clock.now_ms())
            except Unusable as reason:
                raise SettingsError(f"Validation of dynamic config update of SSLFactory failed: {reason}") from None
            if loaded.has_same_files(before):
                continue
            _check_compatible(settings, before, loaded)
            changes.append((one, settings, loaded))
        return changes


def _check_compatible(settings: TlsSettings, before: Loaded, after: Loaded) -> None:
    """Kafka's rules: a listener stays who it is. Raises `SettingsError`."""
    then, now = before.certificate, after.certificate
    fault = None
    if bool(before.trusted) != bool(after.trusted):
        fault = "Cannot add SSL truststore to an existing listener for which no truststore was configured."
        if before.trusted:
            fault = "Cannot remove the SSL truststore from an existing listener for which a truststore was configured."
    elif then.subject != now.subject and not settings.may_change_names:
        fault = (
            f"Keystore DistinguishedName does not match:  existing={{DN={then.subject}}}, new={{DN={now.subject}}} "
            "(ssl.allow.dn.changes=true allows it)"
        )
    elif not then.alternative_names <= now.alternative_names and not settings.may_lose_alternative_names:
        fault = (
            "Keystore SubjectAltNames do not match: the new certificate lacks names of hosts that the old one has "
            "(ssl.allow.san.changes=true allows it)"
        )
    if fault is not None:
        raise SettingsError(f"Validation of dynamic config update of SSLFactory failed: {fault}")
