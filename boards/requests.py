"""The board of requests: what clients ask, how long they wait, and for what."""

from typing import Final

from boards.panels import Board, Choice, Query, Row, Unit, lines
from boards.promql import EACH_REQUEST, P99, errors, of, per_second, requests, total

_REQUEST: Final = Choice(
    name="request",
    title="Request",
    query='label_values(kafka_network_requestmetrics_requests_total{instance="$instance"}, request)',
)

_PARTS: Final = {
    "requestqueuetimems": "waits for a handler",
    "localtimems": "handled",
    "remotetimems": "waits for records, members, a flush",
    "responsequeuetimems": "waits to be sent",
    "responsesendtimems": "sent",
}


_QUOTAS: Final = {
    "produce": "bytes produced",
    "fetch": "bytes fetched",
    "request": "time",
    "controllermutation": "changes of topics",
}
"""By Kafka's name of their metrics."""


def _parts(request: str) -> list[Query]:
    """What its slowest hundredth spend their time with."""
    return [
        Query(of(f"kafka_network_requestmetrics_{part}", f'request="{request}"', P99), name)
        for part, name in _PARTS.items()
    ]


def _total_time(quantile: str) -> Query:
    return Query(of("kafka_network_requestmetrics_totaltimems", EACH_REQUEST, f'quantile="{quantile}"'), "{{request}}")


REQUESTS: Final = Board(
    name="requests",
    title="requests and latency",
    choices=[_REQUEST],
    rows=[
        Row(
            "Requests",
            [
                lines(
                    "Requests",
                    "Answered, by API. Fetches of consumers stand in Fetch, too.",
                    Unit.REQUESTS_PER_S,
                    Query(requests(EACH_REQUEST), "{{request}}"),
                ),
                lines(
                    "Requests by version",
                    "Which versions of the APIs clients speak: old ones are old clients.",
                    Unit.REQUESTS_PER_S,
                    Query(requests(EACH_REQUEST, by=("request", "version")), "{{request}} v{{version}}"),
                ),
                lines(
                    "Errors answered per second",
                    "By API and error code, one for each partition or group that was asked for.",
                    Unit.COUNT,
                    Query(errors(EACH_REQUEST, by=("request", "error")), "{{request}}: {{error}}"),
                ),
                lines(
                    "Size of requests",
                    "The largest hundredth.",
                    Unit.BYTES,
                    Query(of("kafka_network_requestmetrics_requestbytes", EACH_REQUEST, P99), "{{request}}"),
                ),
                lines(
                    "Bytes on the network",
                    "All that connections have brought and taken, by listener.",
                    Unit.BYTES_PER_S,
                    Query(
                        total(per_second("kafka_server_socket_server_metrics_incoming_byte_total"), "listener"),
                        "{{listener}} in",
                    ),
                    Query(
                        total(per_second("kafka_server_socket_server_metrics_outgoing_byte_total"), "listener"),
                        "{{listener}} out",
                    ),
                ),
                lines(
                    "Connections opened and closed per second",
                    "Clients keep theirs open: many a second are scripts, or clients that are refused and try again.",
                    Unit.COUNT,
                    Query(
                        total(per_second("kafka_server_socket_server_metrics_connection_creation_total"), "listener"),
                        "{{listener}} opened",
                    ),
                    Query(
                        total(per_second("kafka_server_socket_server_metrics_connection_close_total"), "listener"),
                        "{{listener}} closed",
                    ),
                ),
            ],
        ),
        Row(
            "Clients that have a quota",
            [
                lines(
                    "Throttled for",
                    "On the average of the last minutes, by quota and by the user and client id that share it.",
                    Unit.MS,
                    *[
                        Query(
                            f"{of(f'kafka_server_{bean}_throttle_time')} > 0",
                            f"{{{{user}}}} {{{{client_id}}}}: {quota}",
                        )
                        for bean, quota in _QUOTAS.items()
                    ],
                ),
                lines(
                    "Bytes produced and fetched",
                    "What clients with a quota of bytes take.",
                    Unit.BYTES_PER_S,
                    Query(of("kafka_server_produce_byte_rate"), "{{user}} {{client_id}}: produced"),
                    Query(of("kafka_server_fetch_byte_rate"), "{{user}} {{client_id}}: fetched"),
                ),
            ],
        ),
        Row(
            "How long they take",
            [
                lines(
                    "Half of the requests",
                    "The median, from the last byte of the request to the last of the answer.",
                    Unit.MS,
                    _total_time("0.50"),
                ),
                lines(
                    "Slowest hundredth",
                    "A fetch waits for records as long as its client allows, a join for the other members.",
                    Unit.MS,
                    _total_time("0.99"),
                ),
                lines(
                    "Slowest thousandth",
                    "What a client may meet once in a while.",
                    Unit.MS,
                    _total_time("0.999"),
                ),
                lines(
                    "Produce: what its slowest hundredth does",
                    "Each part has a slowest hundredth of its own: together they are more than the whole.",
                    Unit.MS,
                    *_parts("Produce"),
                ),
                lines(
                    "Fetch of consumers: what its slowest hundredth does",
                    "Waiting for records is no fault: there were none.",
                    Unit.MS,
                    *_parts("FetchConsumer"),
                ),
                lines(
                    "Metadata: what its slowest hundredth does",
                    "A request that never waits: what it takes is the broker's own.",
                    Unit.MS,
                    *_parts("Metadata"),
                ),
            ],
        ),
        Row(
            "Where they wait",
            [
                lines(
                    "Queues",
                    "Requests that wait for a handler, answers that wait to be sent. Full at "
                    "queued.max.requests: then connections are not read.",
                    Unit.COUNT,
                    Query(of("kafka_network_requestchannel_requestqueuesize"), "requests"),
                    Query(total(of("kafka_network_requestchannel_responsequeuesize", 'processor!=""')), "answers"),
                ),
                lines(
                    "Idle",
                    "Near 0 for long: one process is not enough for this load.",
                    Unit.SHARE,
                    Query(of("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"), "request handlers"),
                    Query(of("kafka_network_processor_idle_percent"), "network processor {{networkProcessor}}"),
                ),
                lines(
                    "Purgatory",
                    "Requests that wait for something to happen: fetches for records, above all.",
                    Unit.COUNT,
                    Query(of("kafka_server_delayedoperationpurgatory_numdelayedoperations"), "{{delayedOperation}}"),
                ),
                lines(
                    "Waited in vain per second",
                    "Fetches that got fewer bytes than they wanted, produces that ran out of time.",
                    Unit.REQUESTS_PER_S,
                    Query(per_second("kafka_server_delayedfetchmetrics_expires_total"), "fetch of a {{fetcherType}}"),
                    Query(per_second("kafka_server_delayedproducemetrics_expires_total"), "produce"),
                ),
                lines(
                    "Fetch sessions",
                    "Clients whose fetches tell only what changes. If they are put out, "
                    "max.incremental.fetch.session.cache.slots is too low.",
                    Unit.COUNT,
                    Query(of("kafka_server_fetchsessioncache_numincrementalfetchsessions"), "sessions"),
                    Query(of("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached"), "partitions"),
                ),
                lines(
                    "Connections by client software",
                    "Who is connected, as the clients say themselves.",
                    Unit.COUNT,
                    Query(
                        total(
                            of("kafka_server_socket_server_metrics_connections_software"),
                            "clientSoftwareName",
                            "clientSoftwareVersion",
                        ),
                        "{{clientSoftwareName}} {{clientSoftwareVersion}}",
                    ),
                ),
            ],
        ),
    ],
)
