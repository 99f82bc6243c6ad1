"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken (API keys 38 to 41;
KIP-48, KIP-373).

Tokens are for clients that have authenticated by something else. What a broker hands on to controllers elsewhere is
checked here, too: Kafka's controllers do not ask how the client has authenticated.
"""

from collections.abc import Callable
from typing import Final

from broker.controller.client import ControllerClient
from broker.metadata.cache import MetadataCache
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    DelegationTokenRequestNotAllowed,
    Fault,
)
from broker.request.session import ANONYMOUS
from broker.runtime.clock import Clock, Ids
from broker.security.delegation_tokens import TokenPlanner, described
from protocol.errors import ErrorCode
from protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from protocol.records.cluster_metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from storage.checkpoints import format_id
from storage.sentinels import NO_TIMESTAMP

_NO_KEY: Final = "there are no delegation tokens here, since delegation.token.secret.key is not set"


def check_may_have_tokens(context: RequestContext) -> None:
    """Raises `DelegationTokenRequestNotAllowed`: nobody knows who the client is, or it has a token itself."""
    session = context.session
    if session.principal == ANONYMOUS:
        raise DelegationTokenRequestNotAllowed("delegation tokens are for clients that have authenticated")
    if session.is_by_token:
        raise DelegationTokenRequestNotAllowed("a client that has authenticated by a delegation token gets no other")


class DelegationTokensHandler:
    """Asks the planner, and has the controller write its records."""

    def __init__(
        self,
        planner: TokenPlanner | None,
        controller: Callable[[], ControllerClient],
        metadata: MetadataCache,
        *,
        clock: Clock,
        ids: Ids,
    ) -> None:
        """``planner`` is None where `delegation.token.secret.key` is not set."""
        self._planner = planner
        self._controller = controller
        self._metadata = metadata
        self._clock = clock
        self._ids = ids

    def create_delegation_token(
        self, request: CreateDelegationTokenRequest, context: RequestContext
    ) -> CreateDelegationTokenResponse | None:
        """Answer with the new token once it is durable. A refusal names the owner that the token would have had."""
        requester = context.session.principal
        owner = requester
        if request.owner_principal_name:
            owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
        try:
            check_may_have_tokens(context)
            if owner != requester and not context.may(Operation.CREATE_TOKENS, ResourceType.USER, owner):
                raise DelegationTokenAuthorizationFailed(f"{requester} may not make tokens of {owner}")
            planner = self._allowed_planner()
            record = planner.create(
                token_id=format_id(self._ids.uuid()),
                owner=owner,
                requester=requester,
                renewers=[f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
                max_lifetime_ms=request.max_lifetime_ms,
                now_ms=self._clock.now_ms(),
            )
        except Fault as fault:
            return _created(owner, requester, error=fault.code)
        secret = planner.secrets.secret_of(record.token_id)
        self._controller().change_delegation_token(
            lambda image: record, then=lambda record: context.respond(_created(owner, requester, record, secret))
        )
        return None

    def renew_delegation_token(
        self, request: RenewDelegationTokenRequest, context: RequestContext
    ) -> RenewDelegationTokenResponse | None:
        """Answer with the token's new end once it is durable. Raises `DelegationTokenRequestNotAllowed`."""
        check_may_have_tokens(context)
        secret, period_ms = bytes(request.hmac), request.renew_period_ms
        principal, now_ms = context.session.principal, self._clock.now_ms()
        try:
            planner = self._allowed_planner()
            self._controller().change_delegation_token(
                lambda image: planner.renew(image, secret, principal, period_ms=period_ms, now_ms=now_ms),
                then=lambda record: context.respond(
                    RenewDelegationTokenResponse(expiry_timestamp_ms=record.expiration_timestamp)
                ),
            )
        except Fault as fault:
            return RenewDelegationTokenResponse(error_code=fault.code, expiry_timestamp_ms=0)
        return None

    def expire_delegation_token(
        self, request: ExpireDelegationTokenRequest, context: RequestContext
    ) -> ExpireDelegationTokenResponse | None:
        """Answer with the token's new end once it is durable. Raises `DelegationTokenRequestNotAllowed`."""
        check_may_have_tokens(context)
        secret, period_ms = bytes(request.hmac), request.expiry_time_period_ms
        principal, now_ms = context.session.principal, self._clock.now_ms()

        def expired(record: DelegationTokenRecord | RemoveDelegationTokenRecord) -> None:
            ends_ms = record.expiration_timestamp if isinstance(record, DelegationTokenRecord) else now_ms
            context.respond(ExpireDelegationTokenResponse(expiry_timestamp_ms=ends_ms))

        try:
            planner = self._allowed_planner()
            self._controller().change_delegation_token(
                lambda image: planner.expire(image, secret, principal, period_ms=period_ms, now_ms=now_ms),
                then=expired,
            )
        except Fault as fault:
            return ExpireDelegationTokenResponse(error_code=fault.code, expiry_timestamp_ms=0)
        return None

    def describe_delegation_token(
        self, request: DescribeDelegationTokenRequest, context: RequestContext
    ) -> DescribeDelegationTokenResponse:
        """Tell the tokens that the client may see, with their secrets. Raises `DelegationTokenRequestNotAllowed`,
        `DelegationTokenAuthDisabled`."""
        check_may_have_tokens(context)
        secrets = self._allowed_planner().secrets
        owners = request.owners

        def may_see(token: DelegationTokenRecord) -> bool:
            return context.may(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id) or context.may(
                Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner
            )

        found = described(
            self._metadata.image,
            context.session.principal,
            None if owners is None else [f"{owner.principal_type}:{owner.principal_name}" for owner in owners],
            may_see,
        )
        return DescribeDelegationTokenResponse(
            tokens=[_described(token, secrets.secret_of(token.token_id)) for token in found]
        )

    def _allowed_planner(self) -> TokenPlanner:
        if self._planner is None:
            raise DelegationTokenAuthDisabled(_NO_KEY)
        return self._planner


def _created(
    owner: str,
    requester: str,
    record: DelegationTokenRecord | None = None,
    secret: bytes = b"",
    *,
    error: ErrorCode = ErrorCode.NONE,
) -> CreateDelegationTokenResponse:
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = requester.partition(":")
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=NO_TIMESTAMP if record is None else record.issue_timestamp,
        expiry_timestamp_ms=NO_TIMESTAMP if record is None else record.expiration_timestamp,
        max_timestamp_ms=NO_TIMESTAMP if record is None else record.max_timestamp,
        token_id="" if record is None else record.token_id,
        hmac=secret,
    )


def _described(token: DelegationTokenRecord, secret: bytes) -> DescribeDelegationTokenResponse.Token:
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = token.requester.partition(":")
    renewers = [renewer.partition(":") for renewer in token.renewers]
    return DescribeDelegationTokenResponse.Token(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=secret,
        renewers=[
            DescribeDelegationTokenResponse.Token.Renewer(principal_type=type_, principal_name=name)
            for type_, _, name in renewers
        ],
    )
