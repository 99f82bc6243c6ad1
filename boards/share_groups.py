"""The board of share groups: whether they keep up, and what becomes of the records that they are given."""

from typing import Final

from boards.panels import Board, Choice, Query, Row, Unit, lines
from boards.promql import EACH_SHARE_GROUP, EACH_TOPIC, P99, errors, highest, of, per_second, requests, slope, total
from boards.topics import TOPIC

_GROUP: Final = Choice(
    name="group",
    title="Group",
    query='label_values(ottla_sharegroup_members{instance="$instance"}, group)',
)
_CHOSEN: Final = EACH_SHARE_GROUP, EACH_TOPIC
_PARTITIONS: Final = "kafka_server_sharepartitionmetrics"
_GROUPS: Final = "kafka_server_sharegroupmetrics"
_COORDINATOR: Final = "kafka_server_share_coordinator_metrics"
_ON_TOPIC: Final = "{{group}} on {{topic}}"
_ON_PARTITION: Final = "{{group}} on {{topic}}-{{partition}}"
_REQUESTS: Final = 'request=~"ShareFetch|ShareAcknowledge|ShareGroupHeartbeat"'

_LAG: Final = of("ottla_sharegroup_lag_sum", *_CHOSEN)
_FINISHED_PER_S: Final = slope("ottla_sharegroup_start_offset_sum", *_CHOSEN)
_IN_FLIGHT: Final = of(f"{_PARTITIONS}_inflightmessagecount", *_CHOSEN)

SHARE_GROUPS: Final = Board(
    name="share-groups",
    title="share groups",
    choices=[_GROUP, TOPIC],
    rows=[
        Row(
            "Lag",
            [
                lines(
                    "Lag",
                    "Records that the group is not done with, those in flight included. It may jump; it must not grow "
                    "for long.",
                    Unit.COUNT,
                    Query(highest(total(_LAG, "group", "topic")), _ON_TOPIC),
                ),
                lines(
                    "Time to catch up",
                    "The lag divided by how fast the group finishes records now, if nothing more came in.",
                    Unit.SECONDS,
                    Query(f"{total(_LAG, 'group')} / ({total(_FINISHED_PER_S, 'group')} > 0)", "{{group}}"),
                ),
                lines(
                    "Lag of the partitions that are furthest behind",
                    "One partition alone: a record that no member gets done, at the start of a full window.",
                    Unit.COUNT,
                    Query(highest(of("ottla_sharegroup_lag", *_CHOSEN)), _ON_PARTITION),
                ),
                lines(
                    "Finished per second",
                    "How fast the start offsets of the groups move.",
                    Unit.COUNT,
                    Query(highest(total(_FINISHED_PER_S, "group", "topic")), _ON_TOPIC),
                ),
                lines(
                    "Members",
                    "0: the group has states and no consumer.",
                    Unit.COUNT,
                    Query(of("ottla_sharegroup_members", EACH_SHARE_GROUP), "{{group}}"),
                ),
                lines(
                    "Share sessions",
                    "Members that fetch from this broker, and the partitions that they fetch.",
                    Unit.COUNT,
                    Query(of("kafka_server_sharesessioncache_sharesessionscount"), "sessions"),
                    Query(of("kafka_server_sharesessioncache_sharepartitionscount"), "partitions in them"),
                ),
            ],
        ),
        Row(
            "Delivery",
            [
                lines(
                    "In flight",
                    "Records between the start offset and the last delivered record, those done with included.",
                    Unit.COUNT,
                    Query(highest(total(_IN_FLIGHT, "group", "topic")), _ON_TOPIC),
                ),
                lines(
                    "In flight in the fullest partitions",
                    "At share.partition.max.record.locks (2000) nothing more is delivered of a partition.",
                    Unit.COUNT,
                    Query(highest(_IN_FLIGHT), _ON_PARTITION),
                ),
                lines(
                    "What members say of records",
                    "Per second. Released records are delivered again, rejected ones never.",
                    Unit.COUNT,
                    Query(total(per_second(f"{_GROUPS}_recordacknowledgements_total"), "ackType"), "{{ackType}}"),
                    is_stacked=True,
                ),
                lines(
                    "Acquisition locks that expire",
                    "Records per second that members have not finished in share.record.lock.duration.ms.",
                    Unit.COUNT,
                    Query(
                        highest(
                            total(per_second(f"{_PARTITIONS}_acquisitionlocktimeout_total", *_CHOSEN), "group", "topic")
                        ),
                        _ON_TOPIC,
                    ),
                ),
                lines(
                    "Dead letters",
                    "Records per second that the group has given up, and that are in its dead letter queue.",
                    Unit.COUNT,
                    Query(per_second(f"{_GROUPS}_deadletterqueuerecordcount_total", EACH_SHARE_GROUP), "{{group}}"),
                ),
                lines(
                    "Dead letters that cannot be written",
                    "Per second. The records are archived all the same: the log says why.",
                    Unit.COUNT,
                    Query(
                        per_second(f"{_GROUPS}_deadletterqueuefailedproducerequests_total", EACH_SHARE_GROUP),
                        "{{group}}",
                    ),
                ),
            ],
        ),
        Row(
            "Requests and coordinators",
            [
                lines(
                    "Requests of share groups",
                    "ShareFetch carries acknowledgements, too.",
                    Unit.REQUESTS_PER_S,
                    Query(requests(_REQUESTS), "{{request}}"),
                ),
                lines(
                    "Errors answered to share groups per second",
                    "INVALID_RECORD_STATE: members acknowledge records whose lock has expired.",
                    Unit.COUNT,
                    Query(errors(_REQUESTS, by=("request", "error")), "{{request}}: {{error}}"),
                ),
                lines(
                    "Slowest hundredth of fetches until they can acquire",
                    "Above 0: the windows of all partitions of the fetch were full.",
                    Unit.MS,
                    Query(of(f"{_GROUPS}_topicpartitionsacquiretimems", EACH_SHARE_GROUP, P99), "{{group}}"),
                ),
                lines(
                    "Share groups by state",
                    "Empty groups have states and no members.",
                    Unit.COUNT,
                    Query(of("kafka_server_group_coordinator_metrics_share_group_count"), "{{state}}"),
                    is_stacked=True,
                ),
                lines(
                    "States written per second",
                    "An acknowledgement is answered when its state is written.",
                    Unit.COUNT,
                    Query(per_second(f"{_COORDINATOR}_write_total"), "states"),
                ),
                lines(
                    "Time to write a state",
                    "With it every acknowledgement takes longer.",
                    Unit.MS,
                    Query(of(f"{_COORDINATOR}_write_latency_avg"), "average"),
                    Query(of(f"{_COORDINATOR}_write_latency_max"), "longest"),
                ),
            ],
        ),
    ],
)
