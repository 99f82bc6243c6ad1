"""The overview board: whether the broker is healthy, on one page."""

from typing import Final

from boards.panels import Board, Query, Row, Unit, lines, number
from boards.promql import ALL_TOPICS, P99, errors, highest, of, per_second, requests, total

_STATES: Final = (
    (0, "not running"),
    (1, "starting"),
    (2, "recovery"),
    (3, "running"),
    (6, "stopping"),
    (7, "stopping"),
)

OVERVIEW: Final = Board(
    name="overview",
    title="overview",
    rows=[
        Row(
            "Now",
            [
                number(
                    "Broker",
                    "Recovery: logs are checked after an unclean stop. Clients are served while it is running.",
                    Unit.COUNT,
                    Query(of("kafka_server_kafkaserver_brokerstate")),
                    words=_STATES,
                ),
                number(
                    "Up for",
                    "Since the process started.",
                    Unit.SECONDS,
                    Query(f"time() - {of('process_start_time_seconds')}"),
                ),
                number(
                    "Topics",
                    "Internal ones included.",
                    Unit.COUNT,
                    Query(of("kafka_controller_kafkacontroller_globaltopiccount")),
                ),
                number(
                    "Partitions",
                    "Of all topics.",
                    Unit.COUNT,
                    Query(of("kafka_server_replicamanager_partitioncount")),
                ),
                number(
                    "Groups",
                    "Groups that have members or offsets.",
                    Unit.COUNT,
                    Query(of("kafka_coordinator_group_groupmetadatamanager_numgroups")),
                ),
                number(
                    "Offline partitions",
                    "Nobody can read or write them: they have no leader. Only the controller knows.",
                    Unit.COUNT,
                    Query(of("kafka_controller_kafkacontroller_offlinepartitionscount")),
                    is_bad_from=1,
                ),
                number(
                    "Under min ISR",
                    "acks=all is refused here: fewer replicas are in sync than these topics demand.",
                    Unit.COUNT,
                    Query(of("kafka_server_replicamanager_underminisrpartitioncount")),
                    is_bad_from=1,
                ),
                number(
                    "Failed directories",
                    "Data directories that are offline until the next start.",
                    Unit.COUNT,
                    Query(of("kafka_log_logmanager_offlinelogdirectorycount")),
                    is_bad_from=1,
                ),
            ],
            columns=8,
        ),
        Row(
            "Traffic",
            [
                lines(
                    "Records in per second",
                    "What producers have written, over all topics.",
                    Unit.COUNT,
                    Query(per_second("kafka_server_brokertopicmetrics_messagesin_total", ALL_TOPICS), "records"),
                ),
                lines(
                    "Bytes in and out",
                    "Batches as they are stored, compressed ones compressed.",
                    Unit.BYTES_PER_S,
                    Query(per_second("kafka_server_brokertopicmetrics_bytesin_total", ALL_TOPICS), "in"),
                    Query(per_second("kafka_server_brokertopicmetrics_bytesout_total", ALL_TOPICS), "out"),
                ),
                lines(
                    "Requests",
                    "Of all clients, by API. The two kinds of fetches stand in Fetch.",
                    Unit.REQUESTS_PER_S,
                    Query(requests('request!~"FetchConsumer|FetchFollower"'), "{{request}}"),
                    is_stacked=True,
                ),
                lines(
                    "Errors answered per second",
                    "By error code, one for each partition or group that was asked for. Some are a client's daily "
                    "life, such as REBALANCE_IN_PROGRESS; UNKNOWN_SERVER_ERROR and KAFKA_STORAGE_ERROR never are.",
                    Unit.COUNT,
                    Query(errors(by=("error",)), "{{error}}"),
                ),
                lines(
                    "Slowest hundredth of requests",
                    "From the last byte of the request to the last of the answer. A fetch waits for "
                    "records as long as its client allows.",
                    Unit.MS,
                    Query(
                        of(
                            "kafka_network_requestmetrics_totaltimems",
                            'request=~"Produce|FetchConsumer|Metadata"',
                            P99,
                        ),
                        "{{request}}",
                    ),
                ),
                lines(
                    "Lag",
                    "Records that a group has not committed yet: all its topics together, the groups that are "
                    "furthest behind.",
                    Unit.COUNT,
                    Query(highest(total(of("kafka_consumergroup_lag_sum"), "consumergroup")), "{{consumergroup}}"),
                ),
            ],
        ),
        Row(
            "Load",
            [
                lines(
                    "Idle",
                    "Near 0 for long: one process is not enough for this load.",
                    Unit.SHARE,
                    Query(of("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"), "request handlers"),
                    Query(of("kafka_network_socketserver_networkprocessoravgidle_percent"), "network processors"),
                ),
                lines(
                    "Connections",
                    "Of clients, by listener.",
                    Unit.COUNT,
                    Query(total(of("kafka_server_socket_server_metrics_connection_count"), "listener"), "{{listener}}"),
                ),
                lines(
                    "Processors used",
                    "1 is one core: the event loop takes no more than that, threads and recovery come on top.",
                    Unit.COUNT,
                    Query(per_second("process_cpu_seconds_total"), "all threads"),
                    Query(of("ottla_loop_busy_ratio"), "the event loop works"),
                ),
                lines(
                    "Memory",
                    "Resident memory of the process. Records are in the page cache, which is not in here.",
                    Unit.BYTES,
                    Query(of("process_resident_memory_bytes"), "resident"),
                ),
                lines(
                    "Open files",
                    "Connections and segments.",
                    Unit.COUNT,
                    Query(of("process_open_fds"), "open"),
                ),
                lines(
                    "Garbage collections",
                    "Of Python's collector, by generation. The oldest one stops the broker longest.",
                    Unit.COUNT,
                    Query(per_second("python_gc_collections_total"), "generation {{generation}}"),
                ),
            ],
        ),
    ],
)
