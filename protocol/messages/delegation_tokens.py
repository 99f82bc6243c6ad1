"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Bytes, Int16, Int32, Int64, String, api_message, field, struct


@api_message(ApiKey.CREATE_DELEGATION_TOKEN)
class CreateDelegationTokenRequest:
    owner_principal_type: String | None = field(since=3, default="")
    owner_principal_name: String | None = field(since=3, default="")
    renewers: Array[Renewer]
    max_lifetime_ms: Int64

    @struct
    class Renewer:
        principal_type: String
        principal_name: String


@api_message(ApiKey.CREATE_DELEGATION_TOKEN)
class CreateDelegationTokenResponse:
    error_code: Int16 = 0
    principal_type: String = field(refused="")
    principal_name: String = field(refused="")
    token_requester_principal_type: String = field(since=3, default="")
    token_requester_principal_name: String = field(since=3, default="")
    issue_timestamp_ms: Int64 = field(refused=-1)
    expiry_timestamp_ms: Int64 = field(refused=-1)
    max_timestamp_ms: Int64 = field(refused=-1)
    token_id: String = field(refused="")
    hmac: Bytes = field(refused=b"")
    throttle_time_ms: Int32 = 0


@api_message(ApiKey.RENEW_DELEGATION_TOKEN)
class RenewDelegationTokenRequest:
    hmac: Bytes
    renew_period_ms: Int64


@api_message(ApiKey.RENEW_DELEGATION_TOKEN)
class RenewDelegationTokenResponse:
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = field(refused=-1)
    throttle_time_ms: Int32 = 0


@api_message(ApiKey.EXPIRE_DELEGATION_TOKEN)
class ExpireDelegationTokenRequest:
    hmac: Bytes
    expiry_time_period_ms: Int64


@api_message(ApiKey.EXPIRE_DELEGATION_TOKEN)
class ExpireDelegationTokenResponse:
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = field(refused=-1)
    throttle_time_ms: Int32 = 0


@api_message(ApiKey.DESCRIBE_DELEGATION_TOKEN)
class DescribeDelegationTokenRequest:
    owners: Array[Owner] | None

    @struct
    class Owner:
        principal_type: String
        principal_name: String


@api_message(ApiKey.DESCRIBE_DELEGATION_TOKEN)
class DescribeDelegationTokenResponse:
    error_code: Int16 = 0
    tokens: Array[Token]
    throttle_time_ms: Int32 = 0

    @struct
    class Token:
        principal_type: String
        principal_name: String
        token_requester_principal_type: String = field(since=3, default="")
        token_requester_principal_name: String = field(since=3, default="")
        issue_timestamp: Int64
        expiry_timestamp: Int64
        max_timestamp: Int64
        token_id: String
        hmac: Bytes
        renewers: Array[Renewer]

        @struct
        class Renewer:
            principal_type: String
            principal_name: String
