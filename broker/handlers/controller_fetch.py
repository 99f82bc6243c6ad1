"""Fetch and FetchSnapshot of the metadata log, on a controller listener (API keys 1 and 59; KIP-595, KIP-630)."""

from broker.raft.metadata_fetch import MetadataFetches
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed
from protocol.messages.fetch import FetchRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest


class ControllerFetchHandler:
    """Lets other nodes follow the metadata log."""

    def __init__(self, fetches: MetadataFetches) -> None:
        self._fetches = fetches

    def fetch(self, request: FetchRequest, context: RequestContext) -> None:
        """Answer with committed records, or wait for them. Raises `ClusterAuthorizationFailed`, StorageError."""
        _check_allowed(context)
        self._fetches.fetch(request, context.api_version, context.peer.listener, context.respond)

    def fetch_snapshot(self, request: FetchSnapshotRequest, context: RequestContext) -> None:
        """Answer with a piece of a snapshot. Raises `ClusterAuthorizationFailed`, StorageError."""
        _check_allowed(context)
        self._fetches.fetch_snapshot(request, context.api_version, context.peer.listener, context.respond)


def _check_allowed(context: RequestContext) -> None:
    if not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        raise ClusterAuthorizationFailed(f"{context.session.principal} may not follow the metadata log")
