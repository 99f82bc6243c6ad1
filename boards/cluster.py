"""The board of the cluster: replicas on other brokers, and the brokers and controllers that this broker belongs to."""

from typing import Final

from boards.panels import Board, Query, Row, Unit, lines, number
from boards.promql import EACH_TOPIC, P99, highest, of, per_second, total
from boards.topics import TOPIC

_FOLLOWING: Final = 'clientId="Replica"'
_MANAGER: Final = "kafka_server_replicamanager"
_CONTROLLER: Final = "kafka_controller_kafkacontroller"

CLUSTER: Final = Board(
    name="cluster",
    title="cluster and replication",
    choices=[TOPIC],
    rows=[
        Row(
            "Now",
            [
                number(
                    "Under-replicated",
                    "Partitions led here whose followers are not all in sync: a broker is away, or does not keep up.",
                    Unit.COUNT,
                    Query(of(f"{_MANAGER}_underreplicatedpartitions")),
                    is_bad_from=1,
                ),
                number(
                    "Under min ISR",
                    "Partitions led here that refuse acks=all: fewer replicas are in sync than min.insync.replicas.",
                    Unit.COUNT,
                    Query(of(f"{_MANAGER}_underminisrpartitioncount")),
                    is_bad_from=1,
                ),
                number(
                    "Offline partitions",
                    "Partitions of the whole cluster without a leader. Only the controller knows: empty elsewhere.",
                    Unit.COUNT,
                    Query(of(f"{_CONTROLLER}_offlinepartitionscount")),
                    is_bad_from=1,
                ),
                number(
                    "Replica lag",
                    "Records that the partition furthest behind its leader lacks here.",
                    Unit.COUNT,
                    Query(of("kafka_server_replicafetchermanager_maxlag", _FOLLOWING)),
                ),
                number(
                    "Fenced brokers",
                    "Registered brokers that are away, or may lead nothing yet. Only the controller knows.",
                    Unit.COUNT,
                    Query(of(f"{_CONTROLLER}_fencedbrokercount")),
                    is_bad_from=1,
                ),
                number(
                    "Brokers",
                    "Brokers that are registered, fenced ones too.",
                    Unit.COUNT,
                    Query(of("kafka_brokers")),
                ),
                number(
                    "This broker",
                    "Fenced: it leads nothing, and clients do not see it. Only on a member of a cluster.",
                    Unit.COUNT,
                    Query(of("ottla_member_fenced")),
                    is_bad_from=1,
                    words=((0, "unfenced"), (1, "fenced")),
                ),
                number(
                    "Controllers",
                    "Whether a leader of the controllers answers. Only on a member of a cluster.",
                    Unit.COUNT,
                    Query(of("ottla_member_controllers_reachable")),
                    words=((0, "unreachable"), (1, "reachable")),
                ),
            ],
            columns=8,
        ),
        Row(
            "Replicas",
            [
                lines(
                    "Replicas of this broker",
                    "Those that it leads, and all.",
                    Unit.COUNT,
                    Query(of(f"{_MANAGER}_leadercount"), "led"),
                    Query(of(f"{_MANAGER}_partitioncount"), "all"),
                ),
                lines(
                    "Partitions that lack replicas",
                    "Of those led here.",
                    Unit.COUNT,
                    Query(of(f"{_MANAGER}_underreplicatedpartitions"), "under-replicated"),
                    Query(of(f"{_MANAGER}_atminisrpartitioncount"), "at min ISR"),
                    Query(of(f"{_MANAGER}_underminisrpartitioncount"), "under min ISR"),
                    Query(of(f"{_MANAGER}_reassigningpartitions"), "being moved"),
                ),
                lines(
                    "Changes of the ISR per second",
                    "Shrinks without a stopped broker: a follower does not keep up, or the network loses connections.",
                    Unit.COUNT,
                    Query(per_second(f"{_MANAGER}_isrshrinks_total"), "shrinks"),
                    Query(per_second(f"{_MANAGER}_isrexpands_total"), "expands"),
                    Query(per_second(f"{_MANAGER}_failedisrupdates_total"), "refused by the controller"),
                ),
                lines(
                    "Lag of followed partitions",
                    "Records that followed partitions lack here, the furthest behind.",
                    Unit.COUNT,
                    Query(
                        highest(of("kafka_server_fetcherlagmetrics_consumerlag", EACH_TOPIC)), "{{topic}}-{{partition}}"
                    ),
                ),
                lines(
                    "Replication",
                    "Batches fetched from leaders and given to followers; moves are the part for new replicas.",
                    Unit.BYTES_PER_S,
                    Query(per_second("kafka_server_brokertopicmetrics_replicationbytesin_total"), "in"),
                    Query(per_second("kafka_server_brokertopicmetrics_replicationbytesout_total"), "out"),
                    Query(per_second("kafka_server_brokertopicmetrics_reassignmentbytesin_total"), "moves, in"),
                    Query(per_second("kafka_server_brokertopicmetrics_reassignmentbytesout_total"), "moves, out"),
                ),
                lines(
                    "Fetches from leaders",
                    "By leader. Without news a fetch waits for replica.fetch.wait.max.ms.",
                    Unit.REQUESTS_PER_S,
                    Query(total(per_second("kafka_server_fetcherstats_requests_total"), "broker"), "{{broker}}"),
                ),
                lines(
                    "Partitions that cannot be followed",
                    "The log says why, once for each.",
                    Unit.COUNT,
                    Query(of("kafka_server_replicafetchermanager_failedpartitionscount", _FOLLOWING), "failed"),
                ),
                lines(
                    "Slowest hundredth of acks=all",
                    "How long produces wait for followers, or for the disk.",
                    Unit.MS,
                    Query(of("kafka_network_requestmetrics_remotetimems", 'request="Produce"', P99), "Produce"),
                ),
                lines(
                    "Connections to other nodes that failed",
                    "By purpose, a second: attempts to connect, and requests without an answer.",
                    Unit.COUNT,
                    Query(per_second("ottla_peers_connections_failed_total"), "{{channel}}: no connection"),
                    Query(per_second("ottla_peers_requests_timed_out_total"), "{{channel}}: no answer"),
                ),
            ],
        ),
        Row(
            "Membership: what this broker has with controllers elsewhere",
            [
                lines(
                    "Age of the last heartbeat",
                    "Near broker.session.timeout.ms (9 s) the controllers fence this broker.",
                    Unit.MS,
                    Query(of("ottla_member_heartbeat_age_ms"), "since the last answer"),
                ),
                lines(
                    "Heartbeats per second",
                    "Failed: no answer, or an error.",
                    Unit.REQUESTS_PER_S,
                    Query(per_second("ottla_member_heartbeats_total"), "sent"),
                    Query(per_second("ottla_member_heartbeats_failed_total"), "failed"),
                ),
                lines(
                    "Forwarded requests",
                    "Changes that clients ask for, until the controllers have answered.",
                    Unit.COUNT,
                    Query(of("kafka_server_forwardingmanager_queuelength"), "waiting"),
                ),
                lines(
                    "Metadata log",
                    "Offset of the last applied record. It follows the controllers' end.",
                    Unit.COUNT,
                    Query(of("kafka_server_broker_metadata_metrics_last_applied_record_offset"), "applied"),
                    Query(of("kafka_server_raft_metrics_high_watermark"), "committed"),
                ),
                lines(
                    "Epoch of the controllers' leader",
                    "A step is an election.",
                    Unit.COUNT,
                    Query(of("kafka_server_raft_metrics_current_epoch"), "epoch"),
                    Query(of("kafka_server_raft_metrics_current_leader"), "leader"),
                ),
            ],
        ),
        Row(
            "The controller, where this node is one",
            [
                lines(
                    "Brokers by state",
                    "Fenced brokers lead nothing.",
                    Unit.COUNT,
                    Query(of(f"{_CONTROLLER}_activebrokercount"), "active"),
                    Query(of(f"{_CONTROLLER}_fencedbrokercount"), "fenced"),
                    Query(of(f"{_CONTROLLER}_controlledshutdownbrokercount"), "stopping"),
                ),
                lines(
                    "Age of brokers' heartbeats",
                    "A broker is fenced when it has been silent for broker.session.timeout.ms.",
                    Unit.MS,
                    Query(of(f"{_CONTROLLER}_timesincelastheartbeatreceivedms"), "broker {{broker}}"),
                ),
                lines(
                    "Leaders",
                    "Without a leader nobody reads or writes. Led by another than the first replica: load is uneven.",
                    Unit.COUNT,
                    Query(of(f"{_CONTROLLER}_offlinepartitionscount"), "without a leader"),
                    Query(of(f"{_CONTROLLER}_preferredreplicaimbalancecount"), "not led by the first replica"),
                ),
                lines(
                    "Fenced for silence, and unclean elections",
                    "An unclean leader may lack acknowledged records; the last in sync only after a power failure.",
                    Unit.COUNT,
                    Query(of(f"{_CONTROLLER}_timedoutbrokerheartbeatcount"), "brokers fenced for their silence"),
                    Query(of("ottla_controller_unclean_elections_total"), "elected unclean: {{leader}}"),
                ),
                lines(
                    "Observers",
                    "Nodes that follow the metadata log of this node.",
                    Unit.COUNT,
                    Query(of("kafka_server_raft_metrics_number_of_observers"), "observers"),
                ),
            ],
        ),
    ],
)
