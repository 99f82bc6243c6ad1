"""ApiVersions: which APIs are served, and in which versions (API key 18; KIP-35, KIP-511, KIP-584,
KIP-1242)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.registration import SUPPORTED_FEATURES
from broker.raft.client import RaftClient
from broker.raft.quorum import Quorum
from broker.request.context import ApiVersionRange, RequestContext
from broker.request.faults import InvalidRequest, RebootstrapRequired
from broker.request.node import NO_NODE, Node
from broker.request.session import ClientSoftware
from protocol.api_keys import FORWARDED, Versions
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE_SINCE_VERSION = 3
FEATURES_FROM_ZERO_SINCE_VERSION = 4
"""Older readers refuse a feature whose least level is 0."""

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    """Reads the list off the registry."""

    def __init__(
        self,
        metadata: MetadataCache,
        raft: RaftClient,
        node: Node,
        *,
        controllers_versions: Callable[[], Mapping[int, Versions]] | None = None,
    ) -> None:
        """``controllers_versions`` has the versions of the controllers' leader by API key, where controllers elsewhere
        answer what is forwarded to them; it is empty while none has answered."""
        self._metadata = metadata
        self._raft = raft
        self._node = node
        self._controllers_versions = controllers_versions

    def api_versions(self, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        """List what is served, unless the client means to ask another cluster or node."""
        names_node = request.node_id != NO_NODE  # it knows more of it than an address
        if names_node != (request.cluster_id is not None):
            raise InvalidRequest("the id of a node and that of its cluster come together")
        if context.api_version >= SOFTWARE_SINCE_VERSION and not (
            _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            raise InvalidRequest(
                f"a client names its software {request.client_software_name!r} {request.client_software_version!r}; "
                "a name or version is letters, digits, dots and hyphens, of which the last two stand inside only"
            )
        if context.api_version >= SOFTWARE_SINCE_VERSION:
            context.session.software = ClientSoftware(request.client_software_name, request.client_software_version)
        if names_node and (request.cluster_id, request.node_id) != (self._node.cluster_id, self._node.node_id):
            raise RebootstrapRequired(f"node {request.node_id} of cluster {request.cluster_id!r} is another one")
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=api.api_key, min_version=api.min_version, max_version=api.max_version
                )
                for api in self._answered(context.apis.advertised())
            ],
            supported_features=[
                ApiVersionsResponse.SupportedFeature(name=name, min_version=least, max_version=most)
                for name, (least, most) in SUPPORTED_FEATURES.items()
                if least > 0 or context.api_version >= FEATURES_FROM_ZERO_SINCE_VERSION
            ],
            # The last offset that is in the image, as Kafka counts.
            finalized_features_epoch=self._metadata.image.end_offset - 1,
            finalized_features=[
                ApiVersionsResponse.FinalizedFeature(name=name, max_version_level=level, min_version_level=level)
                for name, level in finalized_features(self._metadata.image, self._raft.quorum).items()
            ],
        )

    def _answered(self, served: Sequence[ApiVersionRange]) -> Iterable[ApiVersionRange]:
        """What a client may send: of a forwarded API the versions that the controllers know, too (KIP-590)."""
        if self._controllers_versions is None:
            return served
        theirs = self._controllers_versions()
        return [_common(api, theirs.get(api.api_key)) if api.api_key in FORWARDED else api for api in served]


def _common(api: ApiVersionRange, theirs: Versions | None) -> ApiVersionRange:
    """The versions that both know; all of this broker's while the controllers' are not known, or none is common."""
    if theirs is None:
        return api
    first, last = max(api.min_version, theirs[0]), min(api.max_version, theirs[1])
    return ApiVersionRange(api.api_key, first, last) if first <= last else api


def finalized_features(image: MetadataImage, quorum: Quorum) -> dict[str, int]:
    """Level by name. That of the quorum stands in a control record, not among the others; 0 is not listed.

    A feature that is not implemented here is not finalised either, even in a directory adopted from a Kafka that did:
    its clients then do without.
    """
    features = {name: level for name, level in image.features.levels.items() if name in SUPPORTED_FEATURES}
    if quorum.kraft_version > 0:
        features["kraft.version"] = quorum.kraft_version
    return features
