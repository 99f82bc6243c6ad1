"""The one list of APIs, a line each: which method handles its requests, and what is special about them.

The registry reads it, and from there ApiVersions, the dispatcher and the metrics. The versions of an API stand in
`protocol.api_keys`, its messages in ``protocol.messages``, and what makes the handler in `broker.server.handlers`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from broker.dispatch.registry import Handler, Registry, Shortcut
from broker.handlers.fetch import FETCH_CONSUMER
from broker.request.context import RequestContext
from broker.server.handlers import Handlers
from protocol.api_keys import FORWARDED, ApiKey


class Api(NamedTuple):
    """How one API is served; what is not usual about it has a default."""

    key: ApiKey
    handler: Callable[[Handlers], Handler[Any, Any]]
    shortcut: Callable[[Handlers], Shortcut] | None = None
    keeps_frame: bool = False
    advertised_since: int | None = None
    counted_as: str | None = None


APIS: Final = (
    # Old librdkafka looks for the first versions of Produce and drops features without them; they are not served.
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
    Api(ApiKey.SASL_HANDSHAKE, lambda to: to.sasl.sasl_handshake),
    Api(ApiKey.API_VERSIONS, lambda to: to.api_versions.api_versions),
    Api(ApiKey.CREATE_TOPICS, lambda to: to.topics.create_topics),
    Api(ApiKey.DELETE_TOPICS, lambda to: to.topics.delete_topics),
    Api(ApiKey.DELETE_RECORDS, lambda to: to.delete_records.delete_records),
    Api(ApiKey.INIT_PRODUCER_ID, lambda to: to.init_producer_id.init_producer_id),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda to: to.offset_for_leader_epoch.offset_for_leader_epoch),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, lambda to: to.transactions.add_partitions_to_txn),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, lambda to: to.transactions.add_offsets_to_txn),
    Api(ApiKey.END_TXN, lambda to: to.transactions.end_txn),
    Api(ApiKey.WRITE_TXN_MARKERS, lambda to: to.transactions.write_txn_markers),
    Api(ApiKey.TXN_OFFSET_COMMIT, lambda to: to.txn_offset_commit.txn_offset_commit),
    Api(ApiKey.DESCRIBE_ACLS, lambda to: to.acls.describe_acls),
    Api(ApiKey.CREATE_ACLS, lambda to: to.acls.create_acls),
    Api(ApiKey.DELETE_ACLS, lambda to: to.acls.delete_acls),
    Api(ApiKey.DESCRIBE_CONFIGS, lambda to: to.configs.describe_configs),
    Api(ApiKey.ALTER_CONFIGS, lambda to: to.alter_configs.alter_configs),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, lambda to: to.log_dirs.alter_replica_log_dirs),
    Api(ApiKey.DESCRIBE_LOG_DIRS, lambda to: to.log_dirs.describe_log_dirs),
    Api(ApiKey.SASL_AUTHENTICATE, lambda to: to.sasl.sasl_authenticate),
    Api(ApiKey.CREATE_PARTITIONS, lambda to: to.topics.create_partitions),
    Api(ApiKey.CREATE_DELEGATION_TOKEN, lambda to: to.delegation_tokens.create_delegation_token),
    Api(ApiKey.RENEW_DELEGATION_TOKEN, lambda to: to.delegation_tokens.renew_delegation_token),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, lambda to: to.delegation_tokens.expire_delegation_token),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, lambda to: to.delegation_tokens.describe_delegation_token),
    Api(ApiKey.DELETE_GROUPS, lambda to: to.groups.delete_groups),
    Api(ApiKey.ELECT_LEADERS, lambda to: to.elections.elect_leaders),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda to: to.alter_configs.incremental_alter_configs),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda to: to.reassignments.alter_partition_reassignments),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda to: to.reassignments.list_partition_reassignments),
    Api(ApiKey.OFFSET_DELETE, lambda to: to.committed_offsets.offset_delete),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, lambda to: to.client_quotas.describe_client_quotas),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, lambda to: to.client_quotas.alter_client_quotas),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, lambda to: to.scram_credentials.describe_user_scram_credentials),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, lambda to: to.scram_credentials.alter_user_scram_credentials),
    Api(ApiKey.DESCRIBE_QUORUM, lambda to: to.quorum.describe_quorum),
    Api(ApiKey.UPDATE_FEATURES, lambda to: to.features.update_features),
    Api(ApiKey.DESCRIBE_CLUSTER, lambda to: to.cluster.describe_cluster),
    Api(ApiKey.DESCRIBE_PRODUCERS, lambda to: to.producers.describe_producers),
    Api(ApiKey.UNREGISTER_BROKER, lambda to: to.registrations.unregister_broker),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, lambda to: to.transaction_listings.describe_transactions),
    Api(ApiKey.LIST_TRANSACTIONS, lambda to: to.transaction_listings.list_transactions),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda to: to.consumer_groups.heartbeat),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, lambda to: to.consumer_groups.describe),
    Api(ApiKey.LIST_CONFIG_RESOURCES, lambda to: to.config_resources.list_config_resources),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, lambda to: to.topic_partitions.describe_topic_partitions),
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, lambda to: to.share_groups.share_group_heartbeat),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, lambda to: to.share_groups.share_group_describe),
    Api(ApiKey.SHARE_FETCH, lambda to: to.share_fetch.share_fetch),
    Api(ApiKey.SHARE_ACKNOWLEDGE, lambda to: to.share_fetch.share_acknowledge),
    Api(ApiKey.ADD_RAFT_VOTER, lambda to: to.quorum.add_raft_voter),
    Api(ApiKey.REMOVE_RAFT_VOTER, lambda to: to.quorum.remove_raft_voter),
    Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, lambda to: to.share_group_state.initialize_share_group_state),
    Api(ApiKey.READ_SHARE_GROUP_STATE, lambda to: to.share_group_state.read_share_group_state),
    Api(ApiKey.WRITE_SHARE_GROUP_STATE, lambda to: to.share_group_state.write_share_group_state),
    Api(ApiKey.DELETE_SHARE_GROUP_STATE, lambda to: to.share_group_state.delete_share_group_state),
    Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, lambda to: to.share_group_state.read_share_group_state_summary),
    Api(ApiKey.STREAMS_GROUP_HEARTBEAT, lambda to: to.streams_groups.heartbeat),
    Api(ApiKey.STREAMS_GROUP_DESCRIBE, lambda to: to.streams_groups.describe),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, lambda to: to.share_group_offsets.describe_share_group_offsets),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, lambda to: to.share_group_offsets.alter_share_group_offsets),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, lambda to: to.share_group_offsets.delete_share_group_offsets),
    Api(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, lambda to: to.streams_groups.update_topology_description),
    Api(ApiKey.UNREGISTER_CONTROLLER, lambda to: to.registrations.unregister_controller),
)
"""By ascending key."""

_ALTER_CONFIGS: Final = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
"""Their handler changes the levels of this broker's loggers, and forwards the rest by itself."""

_TOKENS: Final = (ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN)


def _forward(handlers: Handlers) -> Handler[Any, Any]:
    assert handlers.forwarding is not None, "the controller is in this process"
    return handlers.forwarding.forward


def _forward_for_tokens(handlers: Handlers) -> Handler[Any, Any]:
    """The same for delegation tokens, which not every client may ask for: controllers do not ask how it came in."""
    from broker.handlers.delegation_tokens import check_may_have_tokens

    forward = _forward(handlers)

    def checked(request: Any, context: RequestContext) -> Any:
        check_may_have_tokens(context)
        return forward(request, context)

    return checked


def serve_all(registry: Registry, handlers: Handlers) -> None:
    """Put every API into the registry: those that only controllers decide forward, where the controllers are others."""
    for api in APIS:
        if api.key in FORWARDED and api.key not in _ALTER_CONFIGS and handlers.controllers is not None:
            forward = _forward_for_tokens if api.key in _TOKENS else _forward
            registry.serve(api.key, partial(forward, handlers))
            continue
        shortcut = None if api.shortcut is None else partial(api.shortcut, handlers)
        registry.serve(
            api.key,
            partial(api.handler, handlers),
            advertised_since=api.advertised_since,
            keeps_frame=api.keeps_frame,
            load_shortcut=shortcut,
            counted_as=api.counted_as,
        )
