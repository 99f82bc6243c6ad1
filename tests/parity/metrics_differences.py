"""Where our metrics are not Apache Kafka's under the JMX exporter, each pattern with its reason; at most forty.

A pattern matches a whole series as `name{label="value",…}`, labels in alphabetical order.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_ASKED: Final = "|".join(
    (
        *("AddPartitionsToTxn", "ApiVersions", "CreatePartitions", "CreateTopics", "DeleteGroups", "DeleteRecords"),
        *("DeleteTopics", "DescribeCluster", "DescribeConfigs", "DescribeGroups", "DescribeLogDirs", "DescribeQuorum"),
        *("DescribeTopicPartitions", "DescribeTransactions", "ElectLeaders", "EndTxn", "Fetch", "FetchConsumer"),
        *("FindCoordinator", "Heartbeat"),
        *("IncrementalAlterConfigs", "InitProducerId", "JoinGroup", "LeaveGroup", "ListConfigResources", "ListGroups"),
        *("ListOffsets", "ListPartitionReassignments", "Metadata", "OffsetCommit", "OffsetDelete", "OffsetFetch"),
        *("OffsetForLeaderEpoch", "Produce", "SyncGroup"),
    )
)
"""Requests that the load asks."""

_FORWARDED: Final = "|".join(
    (
        *("ApiVersions", "CreatePartitions", "CreateTopics", "DeleteTopics", "DescribeQuorum", "ElectLeaders"),
        *("IncrementalAlterConfigs", "ListPartitionReassignments"),
    )
)
"""Requests that Kafka's broker hands on to its controller."""


class Difference(NamedTuple):
    """Some series, and why they differ."""

    pattern: str
    reason: str


MISSING: Final[tuple[Difference, ...]] = (
    Difference(
        f'kafka_network_requestmetrics_.*request="(?!(?:{_ASKED})").*',
        "The series of a request begin when it is asked for the first time, so that a page has no thousands of zeros.",
    ),
    Difference('.*listener="CONTROLLER".*', "The listener of the controller is not opened: nobody else would connect."),
    Difference("kafka_controller_controllereventmanager_.*", "The controller has no thread and no queue of its own."),
    Difference("kafka_server_metadataloader_avgidleratio", "Nor has whoever loads the metadata."),
    Difference(
        r"kafka_server_kafkarequesthandlerpool_(?:controller\w+|\w+idlepercent_count)",
        "There is one pool of handlers; its idle part is told, and not the meter behind it.",
    ),
    Difference(r"kafka_\w+_ignored_?static_?voters", "The voters are not taken from the settings."),
    Difference(
        r"kafka_server_raft_metrics_(?:election_latency_avg|election_latency_max|poll_idle_ratio_avg)",
        "The only voter wins its election when it starts, and polls nobody.",
    ),
    Difference(
        r"kafka_server_socket_server_metrics_(?:io|network_io|select)_.*",
        "These describe Java's selector; kafka_network_processor_idle_percent and ottla_loop_busy_ratio tell as much.",
    ),
    Difference(
        r"kafka_server_socket_server_metrics_request_size_max\{.*",
        "The sizes of requests are told by API: kafka_network_requestmetrics_requestbytes.",
    ),
    Difference(
        r"kafka_server_socket_server_metrics_(?:ip_)?connection_accept_throttle_time\{.*",
        "How long nobody was let in is told: kafka_network_acceptor_acceptorblockedpercent_count.",
    ),
    Difference(
        r"kafka_server_socket_server_metrics_memorypool.*",
        "How much of the memory is left is told: kafka_network_socketserver_memorypoolavailable.",
    ),
    Difference(
        r"kafka_server_socket_server_metrics_reauthentication_latency_max\{.*",
        "The average is told: kafka_server_socket_server_metrics_reauthentication_latency_avg.",
    ),
    Difference(
        r"kafka_server_\w+_queue_size",
        "Throttled connections stand in no queue: kafka_server_*_throttle_time tells of them, by client.",
    ),
    Difference(
        r"kafka_server_group_coordinator_metrics_(?:background|batch|event)_.*",
        "The coordinator works where the handlers do: no threads, queues and buffers of its own.",
    ),
    Difference(
        r"kafka_server_group_coordinator_metrics_streams_group_topology_description_.*",
        "There is no plugin that keeps descriptions of topologies.",
    ),
    Difference(
        r'kafka_network_requestmetrics_(?:errors|requests)_total\{.*request="AddPartitionsToTxn".*'
        r'|.*clientSoftwareName="apache-kafka-java".*',
        "Kafka's leaders of partitions ask its coordinator over the network whether a transaction may write to them.",
    ),
    Difference(
        r"kafka_server_share_coordinator_metrics_(?:batch|event|thread)_.*",
        "The coordinator works where the handlers do: no threads, queues and buffers of its own.",
    ),
    Difference(
        r'.*delayedOperation="(?:AlterAcls|RemoteFetch|RemoteListOffsets)".*|kafka_server_delayedremotelistoffsets.*',
        "There are no ACLs and no remote logs, so nobody waits for them.",
    ),
    Difference("kafka_server_client_metrics_.*", "Clients are not asked for their own metrics (KIP-714)."),
    Difference(
        r"kafka_server_app_info_start(?:_time_ms|timems)\{.*",
        "The time of the start is told once, and not for each client that lives inside the broker.",
    ),
    Difference("kafka_server_kafka_metrics_count_count", "A count of Java objects."),
    Difference(
        r'kafka_server_brokertopicmetrics_bytesout_total\{topic="nowhere"\}',
        "A topic that does not exist has no series; Kafka makes one for every name that a fetch asks for.",
    ),
)

MISSING_ON_A_SINGLE_NODE: Final[tuple[Difference, ...]] = (
    Difference(
        r"kafka_server_(?:\w+_channel|alter_partition|directory_assignments|forwarding|heartbeat|registration)_metrics_.*",
        "Broker and controller are one: there are no connections between them.",
    ),
    Difference("kafka_server_forwardingmanager_.*", "For the same reason no request is forwarded."),
    Difference("kafka_server_assignmentsmanager_.*", "For the same reason no replica's directory is reported."),
    Difference(
        r"kafka_server_controllerserver_.*", "For the same reason: kafka_server_kafkaserver_… tells of the process."
    ),
)

MISSING_ON_A_MEMBER: Final[tuple[Difference, ...]] = (
    Difference(
        r"kafka_server_\w+_metrics_(?:select|io|network_io|request_size|\w*authentication|\w+_rate\b)\w*(?:\{.*)?",
        "Java's selector, SASL, and rates that follow from the totals.",
    ),
    Difference(
        r"kafka_server_forwardingmanager_\w+timems_p\d+",
        "How long a forwarded request takes is told by API: kafka_network_requestmetrics_remotetimems.",
    ),
    Difference(
        r"kafka_server_assignmentsmanager_.*_objectname.*",
        "Kafka has two beans of this name; the agent tells them apart.",
    ),
    Difference(r'kafka_log_log_.*topic="__cluster_metadata".*', "A member keeps the metadata in memory only."),
    Difference(
        r'kafka_network_requestmetrics_.*request="(?!FetchFollower"|Produce").*',
        "Clients ask one broker this and the other that.",
    ),
    Difference(
        r'kafka_network_requestmetrics_errors_total\{error="(?!NONE").*',
        "What a broker refuses while leaders change depends on when it hears of them.",
    ),
    Difference(r".*_connections_software\{.*", "Clients connect to one broker or to both."),
)

OTHER_VALUES: Final[tuple[Difference, ...]] = (
    Difference(
        rf'kafka_network_requestmetrics_.*request="(?:{_FORWARDED})".*',
        "Kafka counts a request that its broker forwards once there and once in the controller.",
    ),
    Difference(
        r'kafka_network_requestmetrics_.*request="(?:DescribeTransactions|FindCoordinator|InitProducerId|ListOffsets'
        r'|OffsetFetch)".*',
        "The load asks this until the broker is so far.",
    ),
    Difference(
        r'kafka_network_requestmetrics_.*request="AddPartitionsToTxn".*',
        "Kafka counts what its leaders of partitions ask the coordinator as well.",
    ),
    Difference(
        r'kafka_log_log_.*topic="__cluster_metadata".*|kafka_controller_kafkacontroller_eventqueueoperations\w+',
        "Kafka's controller writes records that say nothing, to show that it lives.",
    ),
    Difference(
        r"kafka_coordinator_group_groupmetadatamanager_numgroups\w*"
        r'|kafka_server_group_coordinator_metrics_group_count\{protocol="classic"\}'
        r"|kafka_server_group_coordinator_metrics_classic_group_count\{.*",
        "Kafka counts its groups once a minute, and we when somebody asks.",
    ),
)
