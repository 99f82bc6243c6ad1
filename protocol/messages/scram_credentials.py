"""DescribeUserScramCredentials and AlterUserScramCredentials: the passwords of users, salted and hashed."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Bytes, Int8, Int16, Int32, String, api_message, field, struct


@api_message(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
class DescribeUserScramCredentialsRequest:
    users: Array[User] | None

    @struct
    class User:
        name: String


@api_message(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(default=None, refused=None)
    results: Array[Result] = field(mirrors=".")

    @struct
    class Result:
        user: String = field(refused="")
        error_code: Int16 = 0
        error_message: String | None = field(default=None, refused=None)
        credential_infos: Array[CredentialInfo]

        @struct
        class CredentialInfo:
            mechanism: Int8
            iterations: Int32


@api_message(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
class AlterUserScramCredentialsRequest:
    deletions: Array[Deletion]
    upsertions: Array[Upsertion]

    @struct
    class Deletion:
        name: String
        mechanism: Int8

    @struct
    class Upsertion:
        name: String
        mechanism: Int8
        iterations: Int32
        salt: Bytes
        salted_password: Bytes


@api_message(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32 = 0
    results: Array[Result] = field(mirrors=("deletions", "upsertions"))

    @struct
    class Result:
        user: String = field(mirrors="name")
        error_code: Int16 = 0
        error_message: String | None = None
