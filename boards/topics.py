"""The board of topics: produced and fetched data, topic by topic."""

from typing import Final

from boards.panels import Board, Choice, Query, Row, Unit, lines
from boards.promql import EACH_TOPIC, highest, of, per_second, slope, total

TOPIC: Final = Choice(
    name="topic", title="Topic", query='label_values(kafka_topic_partitions{instance="$instance"}, topic)'
)


def _rate(counter: str) -> Query:
    name = f"kafka_server_brokertopicmetrics_{counter}_total"
    return Query(highest(total(per_second(name, EACH_TOPIC), "topic")), "{{topic}}")


def _sum(gauge: str) -> Query:
    return Query(highest(total(of(gauge, EACH_TOPIC), "topic")), "{{topic}}")


TOPICS: Final = Board(
    name="topics",
    title="topics",
    choices=[TOPIC],
    rows=[
        Row(
            "In and out (the topics with most)",
            [
                lines(
                    "Records in per second",
                    "What producers have written.",
                    Unit.COUNT,
                    _rate("messagesin"),
                ),
                lines(
                    "Bytes in",
                    "Batches as they are stored, compressed ones compressed.",
                    Unit.BYTES_PER_S,
                    _rate("bytesin"),
                ),
                lines(
                    "Bytes out",
                    "Batches sent to consumers. Every group that reads a topic counts.",
                    Unit.BYTES_PER_S,
                    _rate("bytesout"),
                ),
                lines(
                    "Partitions written",
                    "How often a produce request had records for a partition. Against the records: how many "
                    "there are in a batch.",
                    Unit.REQUESTS_PER_S,
                    _rate("totalproducerequests"),
                ),
                lines(
                    "Partitions read",
                    "How often a fetch asked for a partition, with or without records in the answer.",
                    Unit.REQUESTS_PER_S,
                    _rate("totalfetchrequests"),
                ),
                lines(
                    "Bytes refused",
                    "Batches larger than max.message.bytes: their producers get MESSAGE_TOO_LARGE.",
                    Unit.BYTES_PER_S,
                    _rate("bytesrejected"),
                ),
            ],
        ),
        Row(
            "What is kept",
            [
                lines(
                    "Size",
                    "Of all partitions' segments, without indexes.",
                    Unit.BYTES,
                    _sum("kafka_log_log_size"),
                    is_stacked=True,
                ),
                lines(
                    "Records",
                    "From the first offset that is kept to the last one. Compaction and transactions leave "
                    "holes, which count.",
                    Unit.COUNT,
                    Query(
                        highest(
                            total(
                                f"{of('kafka_topic_partition_current_offset', EACH_TOPIC)} - "
                                f"{of('kafka_topic_partition_oldest_offset', EACH_TOPIC)}",
                                "topic",
                            )
                        ),
                        "{{topic}}",
                    ),
                ),
                lines(
                    "Offsets deleted per second",
                    "How fast retention and DeleteRecords move the start of the logs.",
                    Unit.COUNT,
                    Query(highest(total(slope("kafka_log_log_logstartoffset", EACH_TOPIC), "topic")), "{{topic}}"),
                ),
                lines(
                    "Segments",
                    "Files of batches, of all partitions. Retention removes whole segments.",
                    Unit.COUNT,
                    _sum("kafka_log_log_numlogsegments"),
                ),
                lines(
                    "Partitions",
                    "As kafka_exporter counts them.",
                    Unit.COUNT,
                    _sum("kafka_topic_partitions"),
                ),
                lines(
                    "Partitions offline",
                    "Without a leader: their data directory has failed.",
                    Unit.COUNT,
                    Query(total(f"({of('kafka_topic_partition_leader', EACH_TOPIC)} < bool 0)", "topic"), "{{topic}}"),
                ),
            ],
        ),
        Row(
            "Transactions",
            [
                lines(
                    "Open transactions",
                    "Ongoing: their producers write. Prepared: their end is decided, and markers are being written.",
                    Unit.COUNT,
                    Query(of("ottla_transactional_ids", 'state=~"Ongoing|PrepareCommit|PrepareAbort"'), "{{state}}"),
                    is_stacked=True,
                ),
                lines(
                    "Transactions ended per second",
                    "Aborted ones are read by consumers that read uncommitted records only. Timed out: the coordinator "
                    "has aborted them, since their producers did not end them in time.",
                    Unit.COUNT,
                    Query(per_second("ottla_transactions_ended_total"), "{{outcome}}"),
                    Query(per_second("ottla_transactions_timed_out_total"), "timed out"),
                ),
                lines(
                    "Oldest open transaction",
                    "How long it is open. Its coordinator aborts it after the transaction.timeout.ms of its producer.",
                    Unit.SECONDS,
                    Query(of("ottla_transaction_oldest_open_seconds"), "oldest"),
                ),
                lines(
                    "Behind an open transaction",
                    "Records up to the high watermark that consumers of committed records do not get yet. It may jump; "
                    "where it grows for long, a transaction hangs.",
                    Unit.COUNT,
                    Query(
                        highest(of("kafka_cluster_partition_laststableoffsetlag", EACH_TOPIC)),
                        "{{topic}}-{{partition}}",
                    ),
                ),
                lines(
                    "Partitions with hanging transactions",
                    "With a transaction that is open 5 minutes longer than transaction.max.timeout.ms: no coordinator "
                    "ends it. 0 is well.",
                    Unit.COUNT,
                    Query(of("kafka_server_replicamanager_partitionswithlatetransactionscount"), "partitions"),
                ),
                lines(
                    "Ends that are written again",
                    "Markers and last records of transactions whose partitions have no leader or no space. 0 is well.",
                    Unit.COUNT,
                    Query(
                        of("kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize"),
                        "markers",
                    ),
                    Query(
                        of("kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize"),
                        "last records",
                    ),
                ),
            ],
        ),
        Row(
            "Archived before deleted (topics with ottla.archive.group)",
            [
                lines(
                    "Not archived yet",
                    "Records that the group has not committed. It may jump; where it grows for long, the archive is "
                    "down or too slow.",
                    Unit.COUNT,
                    _sum("ottla_archive_lag_records"),
                ),
                lines(
                    "Kept until it is archived",
                    "Segments that retention would have removed. The disk pays for it, up to "
                    "ottla.archive.max.bytes of each partition.",
                    Unit.BYTES,
                    _sum("ottla_archive_held_bytes"),
                ),
                lines(
                    "Deleted without being archived",
                    "Records a second that retention gave up to keep to ottla.archive.max.bytes: nobody has them "
                    "any more. 0 is well.",
                    Unit.COUNT,
                    Query(
                        highest(total(per_second("ottla_archive_given_up_records_total", EACH_TOPIC), "topic")),
                        "{{topic}}",
                    ),
                ),
            ],
        ),
    ],
)
