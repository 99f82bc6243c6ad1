"""The one list of APIs, a line each: which method handles its requests, and what is special about them.

The registry reads it, and from there ApiVersions, the dispatcher and the metrics. The versions of an API stand in
`protocol.api_keys`, its messages in ``protocol.messages``, and what makes the handler in `broker.server.handlers`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from broker.dispatch.registry import Handler, Registry, Shortcut
from broker.handlers.fetch import FETCH_CONSUMER
from broker.server.handlers import Handlers
from protocol.api_keys import ApiKey


class Api(NamedTuple):
    """How one API is served; what is not usual about it has a default."""

    key: ApiKey
    handler: Callable[[Handlers], Handler[Any, Any]]
    shortcut: Callable[[Handlers], Shortcut] | None = None
    keeps_frame: bool = False
    advertised_since: int | None = None
    counted_as: str | None = None


APIS: Final = (
    # Old librdkafka looks for the first versions of Produce and drops features without them; nobody serves them.
    Api(ApiKey.PRODUCE, lambda to: to.produce.produce, keeps_frame=True, advertised_since=0),
    Api(ApiKey.FETCH, lambda to: to.fetch.fetch, lambda to: to.fetch_fast_path.fetch, counted_as=FETCH_CONSUMER),
    Api(ApiKey.LIST_OFFSETS, lambda to: to.list_offsets.list_offsets),
    Api(ApiKey.METADATA, lambda to: to.metadata.metadata),
    Api(ApiKey.OFFSET_COMMIT, lambda to: to.committed_offsets.offset_commit),
    Api(ApiKey.OFFSET_FETCH, lambda to: to.committed_offsets.offset_fetch),
    Api(ApiKey.FIND_COORDINATOR, lambda to: to.find_coordinator.find_coordinator),
    Api(ApiKey.JOIN_GROUP, lambda to: to.group_membership.join_group),
    Api(ApiKey.HEARTBEAT, lambda to: to.group_membership.heartbeat),
    Api(ApiKey.LEAVE_GROUP, lambda to: to.group_membership.leave_group),
    Api(ApiKey.SYNC_GROUP, lambda to: to.group_membership.sync_group),
    Api(ApiKey.DESCRIBE_GROUPS, lambda to: to.groups.describe_groups),
    Api(ApiKey.LIST_GROUPS, lambda to: to.groups.list_groups),
    Api(ApiKey.API_VERSIONS, lambda to: to.api_versions.api_versions),
    Api(ApiKey.CREATE_TOPICS, lambda to: to.topics.create_topics),
    Api(ApiKey.DELETE_TOPICS, lambda to: to.topics.delete_topics),
    Api(ApiKey.DELETE_RECORDS, lambda to: to.delete_records.delete_records),
    Api(ApiKey.INIT_PRODUCER_ID, lambda to: to.init_producer_id.init_producer_id),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda to: to.offset_for_leader_epoch.offset_for_leader_epoch),
    Api(ApiKey.DESCRIBE_CONFIGS, lambda to: to.configs.describe_configs),
    Api(ApiKey.ALTER_CONFIGS, lambda to: to.alter_configs.alter_configs),
    Api(ApiKey.DESCRIBE_LOG_DIRS, lambda to: to.log_dirs.describe_log_dirs),
    Api(ApiKey.CREATE_PARTITIONS, lambda to: to.topics.create_partitions),
    Api(ApiKey.DELETE_GROUPS, lambda to: to.groups.delete_groups),
    Api(ApiKey.ELECT_LEADERS, lambda to: to.elections.elect_leaders),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda to: to.alter_configs.incremental_alter_configs),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda to: to.reassignments.alter_partition_reassignments),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda to: to.reassignments.list_partition_reassignments),
    Api(ApiKey.OFFSET_DELETE, lambda to: to.committed_offsets.offset_delete),
    Api(ApiKey.DESCRIBE_QUORUM, lambda to: to.quorum.describe_quorum),
    Api(ApiKey.DESCRIBE_CLUSTER, lambda to: to.cluster.describe_cluster),
    Api(ApiKey.LIST_CONFIG_RESOURCES, lambda to: to.config_resources.list_config_resources),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, lambda to: to.topic_partitions.describe_topic_partitions),
)
"""By ascending key."""


def serve_all(registry: Registry, handlers: Handlers) -> None:
    """Put every API into the registry."""
    for api in APIS:
        shortcut = None if api.shortcut is None else partial(api.shortcut, handlers)
        registry.serve(
            api.key,
            partial(api.handler, handlers),
            advertised_since=api.advertised_since,
            keeps_frame=api.keeps_frame,
            load_shortcut=shortcut,
            counted_as=api.counted_as,
        )
