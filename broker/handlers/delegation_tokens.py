"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken over connections that
are not authenticated (API keys 38 to 41; KIP-48, KIP-373)."""

from typing import Final

from broker.request.context import RequestContext
from broker.request.faults import DelegationTokenRequestNotAllowed
from protocol.errors import ErrorCode
from protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from storage.sentinels import NO_TIMESTAMP

_WHY: Final = "delegation tokens are for connections that are authenticated, and this broker authenticates none"


class DelegationTokensHandler:
    """Says that tokens may not be asked for."""

    def create_delegation_token(
        self, request: CreateDelegationTokenRequest, context: RequestContext
    ) -> CreateDelegationTokenResponse:
        """Name the owner that the token would have had, beside the error."""
        requester_type, _, requester_name = context.session.principal.partition(":")
        owner_type, owner_name = requester_type, requester_name
        if request.owner_principal_name:
            owner_type, owner_name = request.owner_principal_type or "", request.owner_principal_name
        return CreateDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            principal_type=owner_type,
            principal_name=owner_name,
            token_requester_principal_type=requester_type,
            token_requester_principal_name=requester_name,
            issue_timestamp_ms=NO_TIMESTAMP,
            expiry_timestamp_ms=NO_TIMESTAMP,
            max_timestamp_ms=NO_TIMESTAMP,
            token_id="",
            hmac=b"",
        )

    def renew_delegation_token(self, request: RenewDelegationTokenRequest, context: RequestContext) -> None:
        """Raises `DelegationTokenRequestNotAllowed`."""
        raise DelegationTokenRequestNotAllowed(_WHY)

    def expire_delegation_token(self, request: ExpireDelegationTokenRequest, context: RequestContext) -> None:
        """Raises `DelegationTokenRequestNotAllowed`."""
        raise DelegationTokenRequestNotAllowed(_WHY)

    def describe_delegation_token(self, request: DescribeDelegationTokenRequest, context: RequestContext) -> None:
        """Raises `DelegationTokenRequestNotAllowed`."""
        raise DelegationTokenRequestNotAllowed(_WHY)
