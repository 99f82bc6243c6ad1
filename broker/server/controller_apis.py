"""The list of the APIs that a controller listener serves, a line each: which method handles an API's requests.

Of the APIs that Apache Kafka's controllers serve, those are missing that controllers ask each other in elections and
about who votes (52, 53, 54, 82) or at their registration (70): this node is the only controller.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from broker.dispatch.registry import Handler, Registry
from broker.handlers.fetch import FETCH_FOLLOWER
from broker.server.controller_handlers import ControllerHandlers
from protocol.api_keys import ApiKey


class ControllerApi(NamedTuple):
    """How a controller listener serves one API."""

    key: ApiKey
    handler: Callable[[ControllerHandlers], Handler[Any, Any]]
    counted_as: str | None = None
    """Another name than the API's for the times of its requests."""


CONTROLLER_APIS: Final = (
    ControllerApi(ApiKey.FETCH, lambda to: to.fetch.fetch, counted_as=FETCH_FOLLOWER),
    ControllerApi(ApiKey.SASL_HANDSHAKE, lambda to: to.broker.sasl.sasl_handshake),
    ControllerApi(ApiKey.API_VERSIONS, lambda to: to.broker.api_versions.api_versions),
    ControllerApi(ApiKey.CREATE_TOPICS, lambda to: to.broker.topics.create_topics),
    ControllerApi(ApiKey.DELETE_TOPICS, lambda to: to.broker.topics.delete_topics),
    ControllerApi(ApiKey.DESCRIBE_ACLS, lambda to: to.broker.acls.describe_acls),
    ControllerApi(ApiKey.CREATE_ACLS, lambda to: to.broker.acls.create_acls),
    ControllerApi(ApiKey.DELETE_ACLS, lambda to: to.broker.acls.delete_acls),
    ControllerApi(ApiKey.DESCRIBE_CONFIGS, lambda to: to.broker.configs.describe_configs),
    ControllerApi(ApiKey.ALTER_CONFIGS, lambda to: to.alter_configs.alter_configs),
    ControllerApi(ApiKey.SASL_AUTHENTICATE, lambda to: to.broker.sasl.sasl_authenticate),
    ControllerApi(ApiKey.CREATE_PARTITIONS, lambda to: to.broker.topics.create_partitions),
    ControllerApi(ApiKey.CREATE_DELEGATION_TOKEN, lambda to: to.broker.delegation_tokens.create_delegation_token),
    ControllerApi(ApiKey.RENEW_DELEGATION_TOKEN, lambda to: to.broker.delegation_tokens.renew_delegation_token),
    ControllerApi(ApiKey.EXPIRE_DELEGATION_TOKEN, lambda to: to.broker.delegation_tokens.expire_delegation_token),
    ControllerApi(ApiKey.DESCRIBE_DELEGATION_TOKEN, lambda to: to.broker.delegation_tokens.describe_delegation_token),
    ControllerApi(ApiKey.ELECT_LEADERS, lambda to: to.brokers.elect_leaders),
    ControllerApi(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda to: to.alter_configs.incremental_alter_configs),
    ControllerApi(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda to: to.broker.reassignments.alter_partition_reassignments
    ),
    ControllerApi(ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda to: to.broker.reassignments.list_partition_reassignments),
    ControllerApi(ApiKey.ALTER_CLIENT_QUOTAS, lambda to: to.broker.client_quotas.alter_client_quotas),
    ControllerApi(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, lambda to: to.broker.scram_credentials.describe_user_scram_credentials
    ),
    ControllerApi(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, lambda to: to.broker.scram_credentials.alter_user_scram_credentials
    ),
    ControllerApi(ApiKey.DESCRIBE_QUORUM, lambda to: to.broker.quorum.describe_quorum),
    ControllerApi(ApiKey.ALTER_PARTITION, lambda to: to.brokers.alter_partition),
    ControllerApi(ApiKey.UPDATE_FEATURES, lambda to: to.broker.features.update_features),
    ControllerApi(ApiKey.ENVELOPE, lambda to: to.envelope.envelope),
    ControllerApi(ApiKey.FETCH_SNAPSHOT, lambda to: to.fetch.fetch_snapshot),
    ControllerApi(ApiKey.DESCRIBE_CLUSTER, lambda to: to.cluster.describe_cluster),
    ControllerApi(ApiKey.BROKER_REGISTRATION, lambda to: to.brokers.broker_registration),
    ControllerApi(ApiKey.BROKER_HEARTBEAT, lambda to: to.brokers.broker_heartbeat),
    ControllerApi(ApiKey.UNREGISTER_BROKER, lambda to: to.broker.registrations.unregister_broker),
    ControllerApi(ApiKey.ALLOCATE_PRODUCER_IDS, lambda to: to.brokers.allocate_producer_ids),
    ControllerApi(ApiKey.ASSIGN_REPLICAS_TO_DIRS, lambda to: to.brokers.assign_replicas_to_dirs),
    ControllerApi(ApiKey.ADD_RAFT_VOTER, lambda to: to.broker.quorum.add_raft_voter),
    ControllerApi(ApiKey.REMOVE_RAFT_VOTER, lambda to: to.broker.quorum.remove_raft_voter),
    ControllerApi(ApiKey.UNREGISTER_CONTROLLER, lambda to: to.broker.registrations.unregister_controller),
)
"""By ascending key."""


def serve_controller(registry: Registry, handlers: ControllerHandlers) -> None:
    """Put every API of a controller listener into its registry."""
    for api in CONTROLLER_APIS:
        registry.serve(api.key, partial(api.handler, handlers), counted_as=api.counted_as)
