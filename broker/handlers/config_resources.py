"""ListConfigResources: what has configs, by name (API key 74; KIP-714, KIP-1142)."""

from collections.abc import Iterable

from broker.metadata.brokers import Brokers
from broker.metadata.cache import MetadataCache
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed, UnsupportedVersion
from config.resources import ConfigResource
from protocol.messages.config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

TYPES_SINCE_VERSION = 1


class ConfigResourcesHandler:
    """Reads the published image."""

    def __init__(self, metadata: MetadataCache, brokers: Brokers) -> None:
        self._metadata = metadata
        self._brokers = brokers

    def list_config_resources(
        self, request: ListConfigResourcesRequest, context: RequestContext
    ) -> ListConfigResourcesResponse:
        """List the resources of the types asked for, or of all; the first version knows client metrics only."""
        if not context.may(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not describe the configs of the cluster")
        wanted = set(request.resource_types)
        if context.api_version < TYPES_SINCE_VERSION:
            wanted = {ConfigResource.CLIENT_METRICS}
        unknown = wanted.difference(ConfigResource)
        if unknown:
            raise UnsupportedVersion(f"there are no configs of resource type {min(unknown)}")
        return ListConfigResourcesResponse(
            config_resources=[
                ListConfigResourcesResponse.Resource(resource_name=name, resource_type=type_)
                for type_ in ConfigResource
                if not wanted or type_ in wanted
                for name in self._names(type_, context)
            ]
        )

    def _names(self, type_: ConfigResource, context: RequestContext) -> Iterable[str]:
        match type_:
            case ConfigResource.TOPIC:
                return self._metadata.image.topics.by_name
            case ConfigResource.BROKER | ConfigResource.BROKER_LOGGER:
                # Fenced brokers, too, if the client could reach them.
                return [str(broker_id) for broker_id in self._brokers.on(context.peer.listener).by_id]
            case ConfigResource.CLIENT_METRICS | ConfigResource.GROUP:
                # Groups and subscriptions are known by their configs alone.
                return [name for kind, name in self._metadata.image.configs.by_resource if kind == type_]
