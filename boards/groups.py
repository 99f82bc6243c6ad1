"""The board of consumer groups: whether consumers keep up."""

from typing import Final

from boards.panels import Board, Choice, Query, Row, Unit, lines
from boards.promql import EACH_GROUP, EACH_TOPIC, P99, errors, highest, of, requests, slope, total
from boards.topics import TOPIC

_GROUP: Final = Choice(
    name="group",
    title="Group",
    query='label_values(kafka_consumergroup_current_offset_sum{instance="$instance"}, consumergroup)',
)

_STATES: Final = ("stable", "preparingrebalance", "completingrebalance", "empty", "dead")
_REQUESTS_OF_GROUPS: Final = (
    'request=~"FindCoordinator|JoinGroup|SyncGroup|Heartbeat|LeaveGroup|OffsetCommit|OffsetFetch"'
)

_COMMITTED_PER_S: Final = slope("kafka_consumergroup_current_offset_sum", EACH_GROUP, EACH_TOPIC)
_LAG: Final = of("kafka_consumergroup_lag_sum", EACH_GROUP, EACH_TOPIC)

GROUPS: Final = Board(
    name="groups",
    title="groups and lag",
    choices=[_GROUP, TOPIC],
    rows=[
        Row(
            "Lag",
            [
                lines(
                    "Lag",
                    "Records behind what the group has committed. It may jump; it must not grow for long.",
                    Unit.COUNT,
                    Query(highest(total(_LAG, "consumergroup", "topic")), "{{consumergroup}} on {{topic}}"),
                ),
                lines(
                    "Time to catch up",
                    "The lag divided by how fast the group commits now, if nothing more came in.",
                    Unit.SECONDS,
                    Query(
                        f"{total(_LAG, 'consumergroup')} / ({total(_COMMITTED_PER_S, 'consumergroup')} > 0)",
                        "{{consumergroup}}",
                    ),
                ),
                lines(
                    "Lag of the partitions that are furthest behind",
                    "One partition alone: a key that is hot, or a record that its consumer does not get past.",
                    Unit.COUNT,
                    Query(
                        highest(of("kafka_consumergroup_lag", EACH_GROUP, EACH_TOPIC)),
                        "{{consumergroup}} on {{topic}}-{{partition}}",
                    ),
                ),
                lines(
                    "Committed per second",
                    "How fast the offsets of the groups move.",
                    Unit.COUNT,
                    Query(highest(total(_COMMITTED_PER_S, "consumergroup", "topic")), "{{consumergroup}} on {{topic}}"),
                ),
                lines(
                    "Produced per second",
                    "How fast the ends of the logs move: what the groups have to keep up with.",
                    Unit.COUNT,
                    Query(
                        highest(total(slope("kafka_topic_partition_current_offset", EACH_TOPIC), "topic")), "{{topic}}"
                    ),
                ),
                lines(
                    "Offsets kept",
                    "One of each group and partition that was ever committed and has not expired.",
                    Unit.COUNT,
                    Query(of("kafka_coordinator_group_groupmetadatamanager_numoffsets"), "offsets"),
                ),
            ],
        ),
        Row(
            "Groups",
            [
                lines(
                    "Members",
                    "0: the group has offsets and no consumer.",
                    Unit.COUNT,
                    Query(of("kafka_consumergroup_members", EACH_GROUP), "{{consumergroup}}"),
                ),
                lines(
                    "Groups by state",
                    "Groups that rebalance for long stand still: nobody is given partitions.",
                    Unit.COUNT,
                    *[
                        Query(of(f"kafka_coordinator_group_groupmetadatamanager_numgroups{state}"), state)
                        for state in _STATES
                    ],
                    is_stacked=True,
                ),
                lines(
                    "Joins and leaves",
                    "Consumers that come, go or are called to a rebalance. Much of it without deployments: poll "
                    "intervals or sessions that are too short.",
                    Unit.REQUESTS_PER_S,
                    Query(requests('request=~"JoinGroup|LeaveGroup"'), "{{request}}"),
                ),
                lines(
                    "Requests of groups",
                    "Heartbeats and commits, mostly.",
                    Unit.REQUESTS_PER_S,
                    Query(requests(_REQUESTS_OF_GROUPS), "{{request}}"),
                ),
                lines(
                    "Errors answered to groups per second",
                    "REBALANCE_IN_PROGRESS calls members to join again. UNKNOWN_MEMBER_ID and "
                    "ILLEGAL_GENERATION: they were put out, most often for being slow to poll.",
                    Unit.COUNT,
                    Query(errors(_REQUESTS_OF_GROUPS, by=("request", "error")), "{{request}}: {{error}}"),
                ),
                lines(
                    "Slowest hundredth of commits and heartbeats",
                    "A commit is answered when it is in the log of offsets.",
                    Unit.MS,
                    Query(
                        of(
                            "kafka_network_requestmetrics_totaltimems",
                            'request=~"OffsetCommit|Heartbeat|OffsetFetch"',
                            P99,
                        ),
                        "{{request}}",
                    ),
                ),
            ],
        ),
    ],
)
