"""The broker settings that have an effect, under Kafka's names with underscores for dots; ours start with ottla_."""

from collections.abc import Mapping
from typing import Final

from config.declared import Declaration, Settings, setting
from config.listen_address import ListenAddress, parse_control_listener, parse_metrics_listener
from config.listeners import DEFAULT_SECURITY_PROTOCOL_MAP, HIGHEST_PORT, Listener, with_bound_ports
from config.log_config import LogConfig
from config.our_defaults import ours
from config.release_versions import ReleaseVersion, read_release_version
from config.topics_at_start import TopicAtStart, read_topics_at_start
from config.values import ConfigType

LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""What `replica.selector.class` may be."""

_ASSIGNORS: Final = {
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor": "sticky",
}
"""The assignors of groups by their classes."""

EVERY_LOG_DIR: Final = "*"
"""Stands in `cordoned.log.dirs` for all of `log.dirs`."""

_NO_LIMIT: Final = "9223372036854775807"
_NO_LIMIT_INT: Final = "2147483647"
_NOTHING_GIVEN: Final[Mapping[str, str]] = {}
_MS_PER_MINUTE: Final = 60 * 1000
_MS_PER_HOUR: Final = 60 * _MS_PER_MINUTE


def _one_listener(texts: tuple[str, ...]) -> tuple[Listener, ...]:
    """The default listener, or none for an empty list; `config.parse` reads other lists with their protocols."""
    return tuple(Listener(name="PLAINTEXT", host="127.0.0.1", port=9092) for _ in texts)


def _none_if_empty(text: str) -> str | None:
    return text or None


def _names_of_assignors(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The names of Kafka's own assignors, which may be named by their classes."""
    return tuple(_ASSIGNORS.get(text, text) for text in texts)


class BrokerSettings(Settings):
    """The checked settings of a broker, a field for each one in server.yaml. A change makes a new object.

    ``BrokerSettings()`` has the defaults. Times are milliseconds and sizes bytes where
    the name says so; None is "not set".
    """

    # Who this broker is
    node_id: int = setting(ConfigType.INT, ours("node.id"), "[0,...]")
    broker_rack: str | None = setting(ConfigType.STRING, None)
    process_roles: tuple[str, ...] = setting(ConfigType.LIST, ours("process.roles"), "[broker, controller]")
    ottla_cluster_id: str | None = setting(ConfigType.STRING, None, "", _none_if_empty)
    """The cluster id that the first start gives a directory: any text, as in Kafka's format tool; None: random."""
    ottla_release_version: ReleaseVersion | None = setting(ConfigType.STRING, None, "", read_release_version)
    """Gives the features of a new cluster their levels; None: the newest."""

    # Listeners
    listeners: tuple[Listener, ...] = setting(ConfigType.LIST, ours("listeners"), "", _one_listener)
    """The listeners to open; those of the controller are in ``controller_listeners``."""
    advertised_listeners: tuple[Listener, ...] = setting(ConfigType.LIST, "", "", _one_listener)
    """The addresses in Metadata responses; where nothing is advertised, they follow from ``listeners``."""
    listener_security_protocol_map: str = setting(ConfigType.STRING, DEFAULT_SECURITY_PROTOCOL_MAP)
    inter_broker_listener_name: str | None = setting(ConfigType.STRING, None)
    controller_listener_names: tuple[str, ...] = setting(ConfigType.LIST, "")
    ottla_controller_port: int | None = setting(ConfigType.INT, None, "[1,...,65535]")

    # The cluster
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(ConfigType.LIST, "", "non-empty list")
    controller_quorum_voters: tuple[str, ...] = setting(ConfigType.LIST, "", "non-empty list")
    controller_quorum_request_timeout_ms: int = setting(ConfigType.INT, "2000", "[0,...]")
    controller_quorum_retry_backoff_ms: int = setting(ConfigType.INT, "20", "[0,...]")
    controller_socket_timeout_ms: int = setting(ConfigType.INT, "30000")
    initial_broker_registration_timeout_ms: int = setting(ConfigType.INT, "60000")
    broker_heartbeat_interval_ms: int = setting(ConfigType.INT, "2000")
    broker_session_timeout_ms: int = setting(ConfigType.INT, "9000")
    auto_leader_rebalance_enable: bool = setting(ConfigType.BOOLEAN, "true")
    leader_imbalance_check_interval_seconds: int = setting(ConfigType.LONG, "300", "[1,...]")
    num_replica_fetchers: int = setting(ConfigType.INT, "1", "[1,...]")
    replica_fetch_backoff_ms: int = setting(ConfigType.INT, "1000", "[0,...]")
    replica_fetch_max_bytes: int = setting(ConfigType.INT, "1048576", "[0,...]")
    replica_fetch_min_bytes: int = setting(ConfigType.INT, "1")
    replica_fetch_response_max_bytes: int = setting(ConfigType.INT, "10485760", "[0,...]")
    replica_fetch_wait_max_ms: int = setting(ConfigType.INT, "500")
    replica_lag_time_max_ms: int = setting(ConfigType.LONG, "30000")
    replica_selector_class: str | None = setting(ConfigType.STRING, None)
    replica_socket_timeout_ms: int = setting(ConfigType.INT, "30000")
    alter_log_dirs_replication_quota_window_num: int = setting(ConfigType.INT, "11", "[1,...]")
    alter_log_dirs_replication_quota_window_size_seconds: int = setting(ConfigType.INT, "1", "[1,...]")
    replication_quota_window_num: int = setting(ConfigType.INT, "11", "[1,...]")
    replication_quota_window_size_seconds: int = setting(ConfigType.INT, "1", "[1,...]")

    # Network
    num_network_threads: int = setting(ConfigType.INT, "3", "[1,...]")
    num_io_threads: int = setting(ConfigType.INT, "8", "[1,...]")
    queued_max_requests: int = setting(ConfigType.INT, "500", "[1,...]")
    queued_max_request_bytes: int = setting(ConfigType.LONG, ours("queued.max.request.bytes"))
    socket_request_max_bytes: int = setting(ConfigType.INT, "104857600", "[1,...]")
    socket_send_buffer_bytes: int = setting(ConfigType.INT, ours("socket.send.buffer.bytes"))
    socket_receive_buffer_bytes: int = setting(ConfigType.INT, ours("socket.receive.buffer.bytes"))
    socket_listen_backlog_size: int = setting(ConfigType.INT, "50", "[1,...]")
    max_connections: int = setting(ConfigType.INT, _NO_LIMIT_INT, "[0,...]")
    max_connections_per_ip: int = setting(ConfigType.INT, _NO_LIMIT_INT, "[0,...]")
    max_connections_per_ip_overrides: str = setting(ConfigType.STRING, "")
    max_connection_creation_rate: int = setting(ConfigType.INT, _NO_LIMIT_INT, "[0,...]")
    quota_window_num: int = setting(ConfigType.INT, "11", "[1,...]")
    quota_window_size_seconds: int = setting(ConfigType.INT, "1", "[1,...]")
    controller_quota_window_num: int = setting(ConfigType.INT, "11", "[1,...]")
    controller_quota_window_size_seconds: int = setting(ConfigType.INT, "1", "[1,...]")
    connections_max_idle_ms: int = setting(ConfigType.LONG, "600000")
    ottla_connection_max_in_flight: int = setting(ConfigType.INT, "64", "[1,...]")

    # Authentication
    sasl_enabled_mechanisms: tuple[str, ...] = setting(ConfigType.LIST, "GSSAPI")
    sasl_server_max_receive_size: int = setting(ConfigType.INT, "524288")
    connections_max_reauth_ms: int = setting(ConfigType.LONG, "0")
    connection_failed_authentication_delay_ms: int = setting(ConfigType.INT, "100", "[0,...]")
    ottla_authentication_timeout_ms: int = setting(ConfigType.LONG, "60000", "[1,...]")
    delegation_token_secret_key: str | None = setting(ConfigType.PASSWORD, None, "", _none_if_empty)
    delegation_token_max_lifetime_ms: int = setting(ConfigType.LONG, "604800000", "[1,...]")
    delegation_token_expiry_time_ms: int = setting(ConfigType.LONG, "86400000", "[1,...]")
    delegation_token_expiry_check_interval_ms: int = setting(ConfigType.LONG, "3600000", "[1,...]")

    # Authorization
    authorizer_class_name: str = setting(ConfigType.STRING, "", "non-null string")

    # Topics
    auto_create_topics_enable: bool = setting(ConfigType.BOOLEAN, "true")
    delete_topic_enable: bool = setting(ConfigType.BOOLEAN, "true")
    num_partitions: int = setting(ConfigType.INT, "1", "[1,...]")
    default_replication_factor: int = setting(ConfigType.INT, "1")
    ottla_replication_factor_clamp: bool = setting(ConfigType.BOOLEAN, "false")
    min_insync_replicas: int = setting(ConfigType.INT, "1", "[1,...]")
    unclean_leader_election_enable: bool = setting(ConfigType.BOOLEAN, "false")
    ottla_topics_at_start: tuple[TopicAtStart, ...] = setting(ConfigType.STRING, "", "", read_topics_at_start)

    # Requests
    message_max_bytes: int = setting(ConfigType.INT, "1048588", "[0,...]")
    max_decompressed_message_bytes: int = setting(ConfigType.INT, "2147483639", "[1,...,2147483639]")
    fetch_max_bytes: int = setting(ConfigType.INT, "57671680", "[1024,...]")
    max_request_partition_size_limit: int = setting(ConfigType.INT, "2000", "[1,...]")
    max_incremental_fetch_session_cache_slots: int = setting(ConfigType.INT, "1000", "[0,...]")
    fetch_purgatory_purge_interval_requests: int = setting(ConfigType.INT, "1000")
    producer_purgatory_purge_interval_requests: int = setting(ConfigType.INT, "1000")
    delete_records_purgatory_purge_interval_requests: int = setting(ConfigType.INT, "1")
    compression_type: str = setting(ConfigType.STRING, "producer", "[uncompressed, zstd, lz4, snappy, gzip, producer]")
    compression_gzip_level: int = setting(ConfigType.INT, "-1", "[1,...,9] or -1")
    compression_lz4_level: int = setting(ConfigType.INT, "9", "[1,...,17]")
    compression_zstd_level: int = setting(ConfigType.INT, "3", "[-131072,...,22]")
    log_message_timestamp_type: str = setting(ConfigType.STRING, "CreateTime", "[CreateTime, LogAppendTime]")
    log_message_timestamp_before_max_ms: int = setting(ConfigType.LONG, _NO_LIMIT, "[0,...]")
    log_message_timestamp_after_max_ms: int = setting(ConfigType.LONG, "3600000", "[0,...]")
    ottla_records_validation: str = setting(ConfigType.STRING, "headers", "[headers, full]")

    # Log directories and segments
    log_dirs: tuple[str, ...] = setting(ConfigType.LIST, ours("log.dirs"))
    cordoned_log_dirs: tuple[str, ...] = setting(ConfigType.LIST, "")
    """Entries of ``log_dirs`` that take no new replicas, or `EVERY_LOG_DIR`."""
    log_segment_bytes: int = setting(ConfigType.INT, "1073741824", "[1048576,...]")
    log_roll_ms: int | None = setting(ConfigType.LONG, None)
    log_roll_hours: int = setting(ConfigType.INT, "168", "[1,...]")
    log_roll_jitter_ms: int | None = setting(ConfigType.LONG, None)
    log_roll_jitter_hours: int = setting(ConfigType.INT, "0", "[0,...]")
    log_index_size_max_bytes: int = setting(ConfigType.INT, "10485760", "[4,...]")
    log_index_interval_bytes: int = setting(ConfigType.INT, "4096", "[0,...]")
    log_preallocate: bool = setting(ConfigType.BOOLEAN, "false")
    log_segment_delete_delay_ms: int = setting(ConfigType.LONG, "60000", "[0,...]")
    ottla_disk_reserve_bytes: int = setting(ConfigType.LONG, "67108864", "[0,...]")
    num_replica_alter_log_dirs_threads: int | None = setting(ConfigType.INT, None)
    num_recovery_threads_per_data_dir: int = setting(ConfigType.INT, "2", "[1,...]")
    ottla_recovery: str = setting(ConfigType.STRING, "unclean", "[unclean, always, never]")

    # Retention and compaction
    log_cleanup_policy: tuple[str, ...] = setting(ConfigType.LIST, "delete", "[compact, delete]")
    log_retention_ms: int | None = setting(ConfigType.LONG, None)
    log_retention_minutes: int | None = setting(ConfigType.INT, None)
    log_retention_hours: int = setting(ConfigType.INT, "168")
    log_retention_bytes: int = setting(ConfigType.LONG, "-1")
    log_retention_check_interval_ms: int = setting(ConfigType.LONG, "300000", "[1,...]")
    log_initial_task_delay_ms: int = setting(ConfigType.LONG, "30000", "[0,...]")
    ottla_archive_max_bytes: int = setting(ConfigType.LONG, "-1", "[-1,...]")
    log_cleaner_backoff_ms: int = setting(ConfigType.LONG, "15000", "[0,...]")
    log_cleaner_dedupe_buffer_size: int = setting(ConfigType.LONG, "134217728")
    log_cleaner_delete_retention_ms: int = setting(ConfigType.LONG, "86400000", "[0,...]")
    log_cleaner_enable: bool = setting(ConfigType.BOOLEAN, "true")
    log_cleaner_io_buffer_load_factor: float = setting(ConfigType.DOUBLE, "0.9")
    log_cleaner_io_buffer_size: int = setting(ConfigType.INT, "524288", "[0,...]")
    log_cleaner_io_max_bytes_per_second: float = setting(ConfigType.DOUBLE, "1.7976931348623157E308")
    log_cleaner_max_compaction_lag_ms: int = setting(ConfigType.LONG, _NO_LIMIT, "[1,...]")
    log_cleaner_min_cleanable_ratio: float = setting(ConfigType.DOUBLE, "0.5", "[0,...,1]")
    log_cleaner_min_compaction_lag_ms: int = setting(ConfigType.LONG, "0", "[0,...]")
    log_cleaner_threads: int = setting(ConfigType.INT, "1", "[0,...]")

    # Flushing and checkpoints
    log_flush_interval_messages: int = setting(ConfigType.LONG, _NO_LIMIT, "[1,...]")
    log_flush_interval_ms: int | None = setting(ConfigType.LONG, None)
    log_flush_scheduler_interval_ms: int = setting(ConfigType.LONG, _NO_LIMIT)
    log_flush_offset_checkpoint_interval_ms: int = setting(ConfigType.INT, "60000", "[0,...]")
    log_flush_start_offset_checkpoint_interval_ms: int = setting(ConfigType.INT, "60000", "[0,...]")
    replica_high_watermark_checkpoint_interval_ms: int = setting(ConfigType.LONG, "5000")

    # Idempotent producers
    producer_id_expiration_ms: int = setting(ConfigType.INT, "86400000", "[1,...]")
    producer_id_expiration_check_interval_ms: int = setting(ConfigType.INT, "600000", "[1,...]")

    # Groups, transactions and their topics
    group_initial_rebalance_delay_ms: int = setting(ConfigType.INT, ours("group.initial.rebalance.delay.ms"))
    group_min_session_timeout_ms: int = setting(ConfigType.INT, "6000")
    group_max_session_timeout_ms: int = setting(ConfigType.INT, "1800000")
    group_max_size: int = setting(ConfigType.INT, _NO_LIMIT_INT, "[1,...]")
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ConfigType.LIST, "classic,consumer,streams", "[consumer, classic, share, streams]"
    )
    group_consumer_session_timeout_ms: int = setting(ConfigType.INT, "45000", "[1,...]")
    group_consumer_min_session_timeout_ms: int = setting(ConfigType.INT, "45000", "[1,...]")
    group_consumer_max_session_timeout_ms: int = setting(ConfigType.INT, "60000", "[1,...]")
    group_consumer_heartbeat_interval_ms: int = setting(ConfigType.INT, "5000", "[1,...]")
    group_consumer_min_heartbeat_interval_ms: int = setting(ConfigType.INT, "5000", "[1,...]")
    group_consumer_max_heartbeat_interval_ms: int = setting(ConfigType.INT, "15000", "[1,...]")
    group_consumer_assignment_interval_ms: int = setting(ConfigType.INT, "1000", "[0,...]")
    group_consumer_min_assignment_interval_ms: int = setting(ConfigType.INT, "0", "[0,...]")
    group_consumer_max_assignment_interval_ms: int = setting(ConfigType.INT, "15000", "[0,...]")
    group_consumer_max_size: int = setting(ConfigType.INT, _NO_LIMIT_INT, "[1,...]")
    group_consumer_assignors: tuple[str, ...] = setting(ConfigType.LIST, "uniform,range", "", _names_of_assignors)
    group_consumer_migration_policy: str = setting(
        ConfigType.STRING, "bidirectional", "(case insensitive) [DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL]"
    )
    group_consumer_regex_refresh_interval_ms: int = setting(ConfigType.INT, "600000", "[10000,...]")
    group_streams_session_timeout_ms: int = setting(ConfigType.INT, "45000", "[1,...]")
    group_streams_min_session_timeout_ms: int = setting(ConfigType.INT, "45000", "[1,...]")
    group_streams_max_session_timeout_ms: int = setting(ConfigType.INT, "60000", "[1,...]")
    group_streams_heartbeat_interval_ms: int = setting(ConfigType.INT, "5000", "[1,...]")
    group_streams_min_heartbeat_interval_ms: int = setting(ConfigType.INT, "5000", "[1,...]")
    group_streams_max_heartbeat_interval_ms: int = setting(ConfigType.INT, "15000", "[1,...]")
    group_streams_assignment_interval_ms: int = setting(ConfigType.INT, "1000", "[0,...]")
    group_streams_min_assignment_interval_ms: int = setting(ConfigType.INT, "0", "[0,...]")
    group_streams_max_assignment_interval_ms: int = setting(ConfigType.INT, "15000", "[0,...]")
    group_streams_initial_rebalance_delay_ms: int = setting(ConfigType.INT, "3000", "[0,...]")
    group_streams_max_size: int = setting(ConfigType.INT, _NO_LIMIT_INT, "[1,...]")
    group_streams_num_standby_replicas: int = setting(ConfigType.INT, "0", "[0,...]")
    group_streams_max_standby_replicas: int = setting(ConfigType.INT, "2", "[0,...]")
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = setting(ConfigType.LIST, "", "")
    group_streams_assignors: tuple[str, ...] = setting(ConfigType.LIST, "sticky", "", _names_of_assignors)
    offset_metadata_max_bytes: int = setting(ConfigType.INT, "4096")
    offsets_retention_minutes: int = setting(ConfigType.INT, "10080", "[1,...]")
    offsets_retention_check_interval_ms: int = setting(ConfigType.LONG, "600000", "[1,...]")
    offsets_commit_timeout_ms: int = setting(ConfigType.INT, "5000", "[1,...]")
    offsets_load_buffer_size: int = setting(ConfigType.INT, "5242880", "[1,...]")
    offsets_topic_compression_codec: int = setting(ConfigType.INT, "0")
    offsets_topic_num_partitions: int = setting(ConfigType.INT, "50", "[1,...]")
    offsets_topic_replication_factor: int = setting(
        ConfigType.SHORT, ours("offsets.topic.replication.factor"), "[1,...]"
    )
    offsets_topic_segment_bytes: int = setting(ConfigType.INT, "104857600", "[1,...]")
    transaction_max_timeout_ms: int = setting(ConfigType.INT, "900000", "[1,...]")
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(ConfigType.INT, "10000", "[1,...]")
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(ConfigType.INT, "3600000", "[1,...]")
    transaction_partition_verification_enable: bool = setting(ConfigType.BOOLEAN, "true")
    transactional_id_expiration_ms: int = setting(ConfigType.INT, "604800000", "[1,...]")
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(ConfigType.INT, "100", "[0,...]")
    transaction_state_log_load_buffer_size: int = setting(ConfigType.INT, "5242880", "[1,...]")
    transaction_state_log_num_partitions: int = setting(ConfigType.INT, "50", "[1,...]")
    transaction_state_log_replication_factor: int = setting(
        ConfigType.SHORT, ours("transaction.state.log.replication.factor"), "[1,...]"
    )
    transaction_state_log_min_isr: int = setting(ConfigType.INT, ours("transaction.state.log.min.isr"), "[1,...]")
    transaction_state_log_segment_bytes: int = setting(ConfigType.INT, "104857600", "[1,...]")
    group_share_max_size: int = setting(ConfigType.INT, "200", "[1,...,1000]")
    group_share_session_timeout_ms: int = setting(ConfigType.INT, "45000", "[1,...]")
    group_share_min_session_timeout_ms: int = setting(ConfigType.INT, "45000", "[1,...]")
    group_share_max_session_timeout_ms: int = setting(ConfigType.INT, "60000", "[1,...]")
    group_share_heartbeat_interval_ms: int = setting(ConfigType.INT, "5000", "[1,...]")
    group_share_min_heartbeat_interval_ms: int = setting(ConfigType.INT, "5000", "[1,...]")
    group_share_max_heartbeat_interval_ms: int = setting(ConfigType.INT, "15000", "[1,...]")
    group_share_assignment_interval_ms: int = setting(ConfigType.INT, "1000", "[0,...]")
    group_share_min_assignment_interval_ms: int = setting(ConfigType.INT, "0", "[0,...]")
    group_share_max_assignment_interval_ms: int = setting(ConfigType.INT, "15000", "[0,...]")
    group_share_initialize_retry_interval_ms: int = setting(ConfigType.INT, "30000", "[1,...]")
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(ConfigType.INT, "500", "[0,...,500]")
    share_coordinator_cold_partition_snapshot_interval_ms: int = setting(ConfigType.INT, "300000", "[1,...]")
    share_coordinator_state_topic_prune_interval_ms: int = setting(ConfigType.INT, "300000", "[1,...]")
    share_coordinator_write_timeout_ms: int = setting(ConfigType.INT, "5000", "[1,...]")
    share_coordinator_load_buffer_size: int = setting(ConfigType.INT, "5242880", "[1,...]")
    share_coordinator_state_topic_compression_codec: int = setting(ConfigType.INT, "0")
    share_coordinator_state_topic_num_partitions: int = setting(ConfigType.INT, "50", "[1,...]")
    share_coordinator_state_topic_replication_factor: int = setting(
        ConfigType.SHORT, ours("share.coordinator.state.topic.replication.factor"), "[1,...]"
    )
    share_coordinator_state_topic_min_isr: int = setting(
        ConfigType.SHORT, ours("share.coordinator.state.topic.min.isr"), "[1,...]"
    )
    share_coordinator_state_topic_segment_bytes: int = setting(ConfigType.INT, "104857600", "[1,...]")

    # Share groups: records in flight, dead letter queues
    group_share_delivery_count_limit: int = setting(ConfigType.INT, "5", "[2,...,10]")
    group_share_min_delivery_count_limit: int = setting(ConfigType.INT, "2", "[2,...,5]")
    group_share_max_delivery_count_limit: int = setting(ConfigType.INT, "10", "[5,...,25]")
    group_share_record_lock_duration_ms: int = setting(ConfigType.INT, "30000", "[1000,...,3600000]")
    group_share_min_record_lock_duration_ms: int = setting(ConfigType.INT, "15000", "[1000,...,30000]")
    group_share_max_record_lock_duration_ms: int = setting(ConfigType.INT, "60000", "[30000,...,3600000]")
    group_share_partition_max_record_locks: int = setting(ConfigType.INT, "2000", "[100,...,10000]")
    group_share_min_partition_max_record_locks: int = setting(ConfigType.INT, "100", "[100,...,2000]")
    group_share_max_partition_max_record_locks: int = setting(ConfigType.INT, "4000", "[2000,...,10000]")
    group_share_max_share_sessions: int = setting(ConfigType.INT, "2000", "[1,...]")
    share_fetch_purgatory_purge_interval_requests: int = setting(ConfigType.INT, "1000")
    errors_deadletterqueue_auto_create_topics_enable: bool = setting(ConfigType.BOOLEAN, "false")
    errors_deadletterqueue_topic_name_prefix: str = setting(ConfigType.STRING, "dlq.")

    # The metadata log
    metadata_log_dir: str | None = setting(ConfigType.STRING, None)
    metadata_log_segment_bytes: int = setting(ConfigType.INT, "1073741824", "[8388608,...]")
    metadata_log_segment_ms: int = setting(ConfigType.LONG, "604800000")
    metadata_log_max_record_bytes_between_snapshots: int = setting(ConfigType.LONG, "20971520", "[1,...]")
    metadata_log_max_snapshot_interval_ms: int = setting(ConfigType.LONG, "3600000", "[0,...]")
    metadata_max_retention_bytes: int = setting(ConfigType.LONG, "104857600")
    metadata_max_retention_ms: int = setting(ConfigType.LONG, "604800000")

    # Metrics
    ottla_prometheus_listener: ListenAddress | None = setting(
        ConfigType.STRING, "127.0.0.1:9404", "", parse_metrics_listener
    )
    ottla_prometheus_partitions: bool = setting(ConfigType.BOOLEAN, "true")

    # A broker that is under a test
    ottla_clock: str = setting(ConfigType.STRING, "system", "[system, manual]")
    ottla_control_listener: ListenAddress | None = setting(ConfigType.STRING, "", "", parse_control_listener)

    # Derived from the settings
    controller_listeners: tuple[Listener, ...] = ()
    """Listeners of ``controller.listener.names``, on which other brokers find this node's controller."""
    advertised_controller_listeners: tuple[Listener, ...] = ()
    """The addresses that other brokers are given for those that are opened."""
    given: Mapping[str, str] = _NOTHING_GIVEN
    """Texts of the file and the command line, under Kafka's names; DescribeConfigs calls these values static."""

    def _complete(self) -> None:
        if not self.advertised_listeners:
            vars(self)["advertised_listeners"] = self.listeners

    @property
    def metadata_directory(self) -> str:
        """The directory of the metadata log: ``metadata.log.dir``, or else the first log directory."""
        return self.metadata_log_dir or self.log_dirs[0]

    @property
    def cordoned_directories(self) -> tuple[str, ...]:
        """The directories of ``log.dirs`` that take no new replicas (KIP-1066)."""
        return self.log_dirs if self.cordoned_log_dirs == (EVERY_LOG_DIR,) else self.cordoned_log_dirs

    @property
    def is_member(self) -> bool:
        """Whether the controllers are other nodes, whose cluster this broker is a member of."""
        return "controller" not in self.process_roles

    @property
    def chooses_replicas_by_rack(self) -> bool:
        """Whether consumers are sent to a replica in their rack (KIP-392)."""
        return self.replica_selector_class == RACK_AWARE_SELECTOR

    @property
    def opened_controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners on which brokers find the controller of this node; none on a member."""
        return tuple(one for one in self.controller_listeners if one.security_protocol == "PLAINTEXT")

    @property
    def inter_broker_listener(self) -> str:
        """The listener that other brokers use: PLAINTEXT without ``inter.broker.listener.name``."""
        return (self.inter_broker_listener_name or "PLAINTEXT").upper()

    @property
    def max_connections_by_ip(self) -> dict[str, int]:
        """The limits of ``max.connections.per.ip.overrides``, by the host names or addresses given there."""
        entries = filter(None, self.max_connections_per_ip_overrides.replace(" ", "").split(","))
        return {host: int(limit) for host, _, limit in (entry.rpartition(":") for entry in entries)}

    def advertised_on(self, bound_ports: Mapping[str, int]) -> tuple[Listener, ...]:
        """The advertised listeners once the listeners are bound: each port 0 replaced by the listener's own port."""
        return with_bound_ports(self.advertised_listeners, bound_ports)

    def controller_port(self, client_port: int) -> int:
        """The port that the metadata log names for the controller.

        It is the port of the first controller listener. Without a controller listener nothing listens there, and it is
        ``ottla.controller.port``, or else the port above the clients' port.
        """
        beside_clients = client_port + 1 if client_port < HIGHEST_PORT else client_port - 1
        kept = self.controller_listeners[0].port if self.controller_listeners else 0
        return kept or self.ottla_controller_port or beside_clients

    def log_defaults(self) -> LogConfig:
        """The settings of a topic without configs of its own. Milliseconds win over minutes, and minutes over hours."""
        return LogConfig(
            cleanup_policy=frozenset(self.log_cleanup_policy),
            compression_gzip_level=self.compression_gzip_level,
            compression_lz4_level=self.compression_lz4_level,
            compression_type=self.compression_type,
            compression_zstd_level=self.compression_zstd_level,
            delete_retention_ms=self.log_cleaner_delete_retention_ms,
            file_delete_delay_ms=self.log_segment_delete_delay_ms,
            flush_messages=self.log_flush_interval_messages,
            flush_ms=_first_set(self.log_flush_interval_ms, self.log_flush_scheduler_interval_ms),
            index_interval_bytes=self.log_index_interval_bytes,
            max_compaction_lag_ms=self.log_cleaner_max_compaction_lag_ms,
            max_decompressed_message_bytes=self.max_decompressed_message_bytes,
            max_message_bytes=self.message_max_bytes,
            message_timestamp_after_max_ms=self.log_message_timestamp_after_max_ms,
            message_timestamp_before_max_ms=self.log_message_timestamp_before_max_ms,
            message_timestamp_type=self.log_message_timestamp_type,
            min_cleanable_dirty_ratio=self.log_cleaner_min_cleanable_ratio,
            min_compaction_lag_ms=self.log_cleaner_min_compaction_lag_ms,
            min_insync_replicas=self.min_insync_replicas,
            ottla_archive_max_bytes=self.ottla_archive_max_bytes,
            preallocate=self.log_preallocate,
            retention_bytes=self.log_retention_bytes,
            retention_ms=self._retention_ms(),
            segment_bytes=self.log_segment_bytes,
            segment_index_bytes=self.log_index_size_max_bytes,
            segment_jitter_ms=_first_set(self.log_roll_jitter_ms, self.log_roll_jitter_hours * _MS_PER_HOUR),
            segment_ms=_first_set(self.log_roll_ms, self.log_roll_hours * _MS_PER_HOUR),
            unclean_leader_election_enable=self.unclean_leader_election_enable,
        )

    def _retention_ms(self) -> int:
        minutes = None if self.log_retention_minutes is None else self.log_retention_minutes * _MS_PER_MINUTE
        retention_ms = _first_set(self.log_retention_ms, _first_set(minutes, self.log_retention_hours * _MS_PER_HOUR))
        return -1 if retention_ms < 0 else retention_ms


def _first_set(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


BROKER_SETTINGS: Final[Mapping[str, Declaration]] = BrokerSettings.declarations
"""Every setting that does something here by Kafka's name, in the order of server.yaml."""
