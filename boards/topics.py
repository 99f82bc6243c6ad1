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
