"""What a node says of itself in its answer to ApiVersions, and which version both ends speak."""

from collections.abc import Iterator, Mapping
from typing import Final

from protocol.api_keys import ApiKey, Versions
from protocol.errors import ErrorCode
from protocol.headers import decode_response
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

OUR_SOFTWARE: Final = "ottla"
OUR_SOFTWARE_VERSION: Final = "unknown"
"""Kafka's own word for a client that names no version."""

_ERROR_CODE: Final = slice(4, 6)
"""Where it stands in every version, behind the correlation id."""


class NodeVersions(Mapping[int, Versions]):
    """The versions of a node by API key, and its features."""

    __slots__ = ("_apis", "finalized_features", "finalized_features_epoch", "supported_features")

    def __init__(self, answer: ApiVersionsResponse) -> None:
        self._apis = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self.supported_features: Mapping[str, Versions] = {
            feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features
        }
        self.finalized_features: Mapping[str, int] = {
            feature.name: feature.max_version_level for feature in answer.finalized_features
        }
        """Level by name."""
        self.finalized_features_epoch = answer.finalized_features_epoch
        """-1: the node does not know the levels yet."""

    def __getitem__(self, api_key: int) -> Versions:
        return self._apis[api_key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._apis)

    def __len__(self) -> int:
        return len(self._apis)

    def newest_common(self, api_key: int, ours: Versions) -> int | None:
        """The newest version of an API that lies in both ranges; None where there is none."""
        if api_key not in self._apis:
            return None
        first, last = self._apis[api_key]
        newest = min(last, ours[1])
        return newest if newest >= max(first, ours[0]) else None


def api_versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=OUR_SOFTWARE, client_software_version=OUR_SOFTWARE_VERSION)


def decode_api_versions(version: int, payload: memoryview) -> tuple[int, ApiVersionsResponse]:
    """Read an answer to ApiVersions. A node that does not know the version that it was asked in answers in version 0.
    Raises `Malformed`."""
    if int.from_bytes(payload[_ERROR_CODE], "big") == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    return decode_response(ApiVersionsResponse, version, payload)


def version_to_ask_again(answer: ApiVersionsResponse, asked: int) -> int | None:
    """Where the node does not know version ``asked`` of ApiVersions: in which version to ask again, as Kafka's clients
    do. That is the newest that the node names, or 0. None: it need not be asked again."""
    if answer.error_code != ErrorCode.UNSUPPORTED_VERSION or asked == 0:
        return None
    named = [api.max_version for api in answer.api_keys if api.api_key == ApiKey.API_VERSIONS]
    return max(0, min(*named, asked - 1)) if named else 0
