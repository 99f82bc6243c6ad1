"""Metrics that boards and alerts ask for and the broker does not export yet, by the subject that will bring them.

A name leaves this list when it is exported: a test fails until it does.
"""

from __future__ import annotations

from typing import Final

from tests.support.exported_metrics import Metrics


def _metrics(*names: str, labels: str = "") -> Metrics:
    return {name: frozenset(labels.split()) for name in names}


_REQUESTS = "kafka_network_requestmetrics"
_SOCKETS = "kafka_server_socket_server_metrics"
_TOPICS = "kafka_server_brokertopicmetrics"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager"

AWAITED: Final[dict[str, Metrics]] = {
    "requests": {
        **_metrics(f"{_REQUESTS}_requests_total", labels="request version"),
        **_metrics(f"{_REQUESTS}_errors_total", labels="request error"),
        **_metrics(
            f"{_REQUESTS}_totaltimems",
            f"{_REQUESTS}_requestqueuetimems",
            f"{_REQUESTS}_localtimems",
            f"{_REQUESTS}_remotetimems",
            f"{_REQUESTS}_responsequeuetimems",
            f"{_REQUESTS}_responsesendtimems",
            f"{_REQUESTS}_requestbytes",
            labels="request quantile",
        ),
    },
    "network": {
        **_metrics(
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "kafka_network_requestchannel_requestqueuesize",
            "ottla_loop_busy_ratio",
        ),
        **_metrics("kafka_network_requestchannel_responsequeuesize", labels="processor"),
        **_metrics("kafka_network_processor_idle_percent", labels="networkProcessor"),
        **_metrics(
            f"{_SOCKETS}_connection_count",
            f"{_SOCKETS}_connection_creation_total",
            f"{_SOCKETS}_connection_close_total",
            f"{_SOCKETS}_incoming_byte_total",
            f"{_SOCKETS}_outgoing_byte_total",
            labels="listener networkProcessor",
        ),
        **_metrics(
            f"{_SOCKETS}_connections_software",
            labels="clientSoftwareName clientSoftwareVersion listener networkProcessor",
        ),
        **_metrics("ottla_network_connections_refused_total", labels="listener"),
    },
    "topics": {
        **_metrics(
            f"{_TOPICS}_messagesin_total",
            f"{_TOPICS}_bytesin_total",
            f"{_TOPICS}_bytesout_total",
            f"{_TOPICS}_bytesrejected_total",
            f"{_TOPICS}_totalproducerequests_total",
            f"{_TOPICS}_totalfetchrequests_total",
            "kafka_topic_partitions",
            labels="topic",
        ),
        **_metrics(
            "kafka_topic_partition_current_offset",
            "kafka_topic_partition_oldest_offset",
            "kafka_topic_partition_leader",
            "kafka_log_log_size",
            "kafka_log_log_numlogsegments",
            "kafka_log_log_logstartoffset",
            labels="topic partition",
        ),
    },
    "replicas, controller and process": _metrics(
        "kafka_controller_kafkacontroller_globaltopiccount",
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka_server_kafkaserver_brokerstate",
        "kafka_server_kafkaserver_linux_disk_read_bytes",
        "kafka_server_kafkaserver_linux_disk_write_bytes",
        "kafka_server_replicamanager_offlinereplicacount",
        "kafka_server_replicamanager_partitioncount",
        "kafka_server_replicamanager_produceridcount",
        "kafka_server_replicamanager_underminisrpartitioncount",
        "kafka_server_replicamanager_underreplicatedpartitions",
    ),
    "purgatory and fetch sessions": {
        **_metrics("kafka_server_delayedoperationpurgatory_numdelayedoperations", labels="delayedOperation"),
        **_metrics("kafka_server_delayedfetchmetrics_expires_total", labels="fetcherType"),
        **_metrics("kafka_server_delayedproducemetrics_expires_total", labels="topic partition"),
        **_metrics(
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        ),
    },
    "logs": {
        **_metrics(
            "kafka_log_logmanager_offlinelogdirectorycount", "kafka_log_logflushstats_logflushrateandtimems_count"
        ),
        **_metrics("kafka_log_logflushstats_logflushrateandtimems", labels="quantile"),
        **_metrics(
            "kafka_log_logmanager_logdirectoryoffline",
            "ottla_log_directory_free_bytes",
            "ottla_log_directory_total_bytes",
            labels="logDirectory",
        ),
        **_metrics("ottla_log_rolls_total", "ottla_log_segments_removed_total", labels="topic"),
    },
    "consumer groups": {
        **_metrics(
            f"{_GROUPS}_numgroups",
            f"{_GROUPS}_numgroupsstable",
            f"{_GROUPS}_numgroupspreparingrebalance",
            f"{_GROUPS}_numgroupscompletingrebalance",
            f"{_GROUPS}_numgroupsempty",
            f"{_GROUPS}_numgroupsdead",
            f"{_GROUPS}_numoffsets",
        ),
        **_metrics("kafka_consumergroup_members", labels="consumergroup"),
        **_metrics(
            "kafka_consumergroup_lag_sum", "kafka_consumergroup_current_offset_sum", labels="consumergroup topic"
        ),
        **_metrics("kafka_consumergroup_lag", labels="consumergroup topic partition"),
    },
}
