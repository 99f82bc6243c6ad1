"""SaslListener: what the gates of one listener share, the mechanisms above all."""

import base64
from collections.abc import Callable, Mapping
from typing import Final

from broker.metadata.cache import MetadataCache
from broker.runtime.clock import Clock
from broker.runtime.worker_thread import MakeWorker
from broker.security.delegation_tokens import TokenSecrets
from broker.security.sasl.credentials import ImageCredentials
from broker.security.sasl.exchange import Exchange
from broker.security.sasl.oauthbearer import OAuthBearerExchange, TokenValidator
from broker.security.sasl.plain import PlainExchange
from broker.security.sasl.scram import ScramExchange, ScramHash
from broker.security.sasl.token_source import TokenSource, make_validator
from config.oauthbearer import OAUTHBEARER
from config.sasl import PLAIN, MechanismSettings, SaslSettings

_NONCE_BYTES: Final = 20
_SECRET_BYTES: Final = 32


class SaslListener:
    """The mechanisms of one listener, each of which makes the exchanges of its clients."""

    def __init__(
        self,
        settings: SaslSettings,
        *,
        metadata: MetadataCache,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        make_worker: MakeWorker,
    ) -> None:
        """``random_bytes`` gives bytes that nobody can foresee. Raises ImportError without the extra that checks signed
        tokens."""
        self.settings = settings
        self.clock = clock
        self.token_sources: list[TokenSource] = []
        """What has to be started, and stopped, where tokens are signed."""
        self._metadata = metadata
        self._random_bytes = random_bytes
        self._make_worker = make_worker
        self._secret = random_bytes(_SECRET_BYTES)
        self._exchanges: Mapping[str, Callable[[], Exchange]] = {
            name: self._maker(mechanism) for name, mechanism in settings.mechanisms.items()
        }

    def exchange(self, mechanism: str) -> Exchange | None:
        """A new exchange by a mechanism; None if the listener does not have it."""
        make = self._exchanges.get(mechanism)
        return None if make is None else make()

    def max_reauth_ms(self, mechanism: str) -> int:
        """After how long a client that has authenticated so has to do it again; 0: never."""
        return self.settings.mechanisms[mechanism].max_reauth_ms

    def _maker(self, mechanism: MechanismSettings) -> Callable[[], Exchange]:
        if mechanism.name == PLAIN:
            return lambda: PlainExchange(mechanism.users)
        if mechanism.name == OAUTHBEARER:
            validator = self._make_validator(mechanism)
            return lambda: OAuthBearerExchange(validator)
        hash_ = ScramHash(mechanism.name)
        key = self.settings.token_secret_key
        secrets = None if key is None else TokenSecrets(key)
        credentials = ImageCredentials(self._metadata, hash_, self._secret, clock=self.clock, token_secrets=secrets)
        return lambda: ScramExchange(hash_, credentials, self._nonce)

    def _make_validator(self, mechanism: MechanismSettings) -> TokenValidator:
        assert mechanism.tokens is not None, "the settings say how tokens are checked"
        validator, source = make_validator(mechanism.tokens, clock=self.clock, make_worker=self._make_worker)
        if source is not None:
            self.token_sources.append(source)
        return validator

    def _nonce(self) -> str:
        return base64.b32encode(self._random_bytes(_NONCE_BYTES)).decode().lower()
