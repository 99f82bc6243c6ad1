"""Makes what checks the tokens of OAUTHBEARER, and where tokens are signed the source of the keys."""

from typing import Protocol

from broker.runtime.clock import Clock
from broker.runtime.worker_thread import MakeWorker
from broker.security.sasl.jwt import UnsecuredValidator
from broker.security.sasl.oauthbearer import TokenValidator
from config.oauthbearer import SignedTokens, UnsecuredTokens


class TokenSource(Protocol):
    """Fetches the keys that sign tokens."""

    def start(self) -> None:
        """Fetch from now on."""

    async def stop(self) -> None:
        """Fetch nothing more; returns when the fetch under way is over."""


def make_validator(
    settings: SignedTokens | UnsecuredTokens, *, clock: Clock, make_worker: MakeWorker
) -> tuple[TokenValidator, TokenSource | None]:
    """Raises ImportError where tokens are signed, and the extra that checks signatures is not installed."""
    if isinstance(settings, UnsecuredTokens):
        unsecured = UnsecuredValidator(
            clock.now_ms,
            subject_claim=settings.subject_claim,
            scope_claim=settings.scope_claim,
            required_scopes=settings.required_scopes,
            skew_ms=settings.clock_skew_ms,
        )
        return unsecured, None
    from broker.security.sasl.jwks import JwksSource
    from broker.security.sasl.signatures import SignedValidator

    source = JwksSource(settings, clock=clock, worker=make_worker("jwks"))
    return SignedValidator(settings, now_ms=clock.now_ms, keys=source.current, look_again=source.look_again), source
