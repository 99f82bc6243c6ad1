"""Delegation tokens (KIP-48, KIP-373): who may have them, and the records that make, change and remove them.

A token is an id and a secret, which is the HMAC of the id under `delegation.token.secret.key`. The metadata log has no
secret: every broker with the same key knows the secrets of all tokens.
"""

import base64
import hmac
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from broker.metadata.image.metadata_image import MetadataImage
from broker.request.faults import (
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
)
from config.broker_settings import BrokerSettings
from protocol.records.cluster_metadata import DelegationTokenRecord, RemoveDelegationTokenRecord

_USER: Final = "User"
_DIGEST: Final = "sha512"


class TokenTimes(NamedTuple):
    """How long tokens live, in milliseconds."""

    max_lifetime_ms: int
    renew_lifetime_ms: int
    """How long until a token has to be renewed."""


def tokens_of(image: MetadataImage) -> Iterable[DelegationTokenRecord]:
    """All tokens, expired ones too."""
    for record in image.delegation_tokens.by_key.values():
        assert isinstance(record, DelegationTokenRecord)
        yield record


def token_of(image: MetadataImage, token_id: str) -> DelegationTokenRecord | None:
    """The token of an id."""
    record = image.delegation_tokens.by_key.get(token_id)
    assert record is None or isinstance(record, DelegationTokenRecord)
    return record


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Whether a token lets nobody in any more."""
    return token.expiration_timestamp < now_ms or token.max_timestamp < now_ms


def may_change(token: DelegationTokenRecord, principal: str) -> bool:
    """Whether a token is the principal's own to renew, to let expire and to look at."""
    return principal in (token.owner, token.requester, *token.renewers)


class TokenSecrets:
    """Knows the secret of each token."""

    def __init__(self, secret_key: str) -> None:
        self._key = secret_key.encode()

    def secret_of(self, token_id: str) -> bytes:
        """What a client shows to renew a token; in Base64 it is the password of a login."""
        return hmac.digest(self._key, token_id.encode(), _DIGEST)

    def password_of(self, token_id: str) -> bytes:
        """The password of a login by SCRAM."""
        return base64.b64encode(self.secret_of(token_id))

    def find(self, image: MetadataImage, secret: bytes) -> DelegationTokenRecord:
        """The token that has this secret. Raises `DelegationTokenNotFound`."""
        found = [token for token in tokens_of(image) if hmac.compare_digest(self.secret_of(token.token_id), secret)]
        if not found:
            raise DelegationTokenNotFound("no token has this HMAC")
        return found[0]


class TokenPlanner:
    """What becomes of tokens. Nothing is kept here: everything follows from the image."""

    def __init__(self, secrets: TokenSecrets, times: TokenTimes) -> None:
        self.secrets = secrets
        self._times = times

    def create(
        self, *, token_id: str, owner: str, requester: str, renewers: Sequence[str], max_lifetime_ms: int, now_ms: int
    ) -> DelegationTokenRecord:
        """A new token. ``max_lifetime_ms`` below 1 is the longest. Raises `InvalidPrincipalType`."""
        for renewer in renewers:
            if renewer.partition(":")[0] != _USER:
                raise InvalidPrincipalType(f"the renewer {renewer} is no {_USER}")
        lifetime_ms = self._times.max_lifetime_ms
        if max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, max_lifetime_ms)
        return DelegationTokenRecord(
            owner=owner,
            requester=requester,
            renewers=list(renewers),
            issue_timestamp=now_ms,
            max_timestamp=now_ms + lifetime_ms,
            expiration_timestamp=now_ms + min(lifetime_ms, self._times.renew_lifetime_ms),
            token_id=token_id,
        )

    def renew(
        self, image: MetadataImage, secret: bytes, principal: str, *, period_ms: int, now_ms: int
    ) -> DelegationTokenRecord:
        """The token with more time. ``period_ms`` below 1 is the longest. Raises a `Fault`."""
        token = self.secrets.find(image, secret)
        if is_expired(token, now_ms):
            raise DelegationTokenExpired(f"the token {token.token_id} has expired")
        _check_change(token, principal)
        renewed_ms = self._times.renew_lifetime_ms if period_ms < 1 else min(self._times.renew_lifetime_ms, period_ms)
        return _until(token, now_ms + renewed_ms)

    def expire(
        self, image: MetadataImage, secret: bytes, principal: str, *, period_ms: int, now_ms: int
    ) -> DelegationTokenRecord | RemoveDelegationTokenRecord:
        """The token with another end, or its removal where ``period_ms`` is negative. Raises a `Fault`."""
        token = self.secrets.find(image, secret)
        _check_change(token, principal)
        if period_ms < 0:
            return RemoveDelegationTokenRecord(token_id=token.token_id)
        if is_expired(token, now_ms):
            raise DelegationTokenExpired(f"the token {token.token_id} has expired")
        return _until(token, now_ms + period_ms)


def make_planner(settings: BrokerSettings) -> TokenPlanner | None:
    """None where `delegation.token.secret.key` is not set, so that there are no tokens."""
    key = settings.delegation_token_secret_key
    if key is None:
        return None
    times = TokenTimes(
        max_lifetime_ms=settings.delegation_token_max_lifetime_ms,
        renew_lifetime_ms=settings.delegation_token_expiry_time_ms,
    )
    return TokenPlanner(TokenSecrets(key), times)


def removals_of_expired(image: MetadataImage, now_ms: int) -> list[RemoveDelegationTokenRecord]:
    """The records that remove every token that has expired."""
    return [
        RemoveDelegationTokenRecord(token_id=token.token_id) for token in tokens_of(image) if is_expired(token, now_ms)
    ]


def described(
    image: MetadataImage, principal: str, owners: Sequence[str] | None, may_see: Callable[[DelegationTokenRecord], bool]
) -> list[DelegationTokenRecord]:
    """The tokens of ``owners``, or of all for None, as far as the principal may look at them: its own, and those that
    it ``may_see``."""
    return [
        token
        for token in tokens_of(image)
        if (owners is None or any(may_change(token, owner) for owner in owners))
        and (may_change(token, principal) or may_see(token))
    ]


def _check_change(token: DelegationTokenRecord, principal: str) -> None:
    if not may_change(token, principal):
        raise DelegationTokenOwnerMismatch(f"{principal} is neither owner nor renewer of the token {token.token_id}")


def _until(token: DelegationTokenRecord, expiry_ms: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=min(token.max_timestamp, expiry_ms),
        token_id=token.token_id,
    )
