"""Metrics of connections, of the queues between network and handlers, and of the loop's idle time."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from broker.metrics.past import Past
from broker.metrics.series import Family, Samples, count, counter, gauge, one
from broker.metrics.sources import MetricSources
from broker.request.session import UNKNOWN_SOFTWARE

_US_PER_S: Final = 1_000_000
_NS_PER_US: Final = 1000
_NS_PER_MS: Final = 1_000_000

MOST_SOFTWARE: Final = 100
"""The most kinds of client software with series of their own: clients choose the names."""

REQUEST_QUEUE: Final = gauge(
    "kafka_network_requestchannel_requestqueuesize",
    "Requests that wait for a handler",
    bean="kafka.network:type=RequestChannel,name=RequestQueueSize",
)
RESPONSE_QUEUE: Final = gauge(
    "kafka_network_requestchannel_responsequeuesize",
    "Connections with answers that wait to be sent; without a processor: of all processors",
    "processor",
    bean="kafka.network:type=RequestChannel,name=ResponseQueueSize,processor=*",
)
PROCESSOR_IDLE: Final = gauge(
    "kafka_network_processor_idle_percent",
    "Idle time of the processor, as a share (0 to 1) of the time that it could have used on the event loop",
    "networkProcessor",
    bean="kafka.network:type=Processor,name=IdlePercent,networkProcessor=*",
)
PROCESSORS_IDLE: Final = gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "Idle time of the processors on the average, as a share (0 to 1) of the time that they could have used",
    bean="kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
)
HANDLERS_IDLE: Final = gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "Idle time of the request handlers, as a share (0 to 1) of the time that they could have used on the event loop",
    bean="kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
)
BROKER_HANDLERS_IDLE: Final = gauge(
    "kafka_server_kafkarequesthandlerpool_brokerrequesthandleravgidle_percent",
    "Idle time of the broker's request handlers, as a share (0 to 1): there is one pool of handlers",
    bean="kafka.server:type=KafkaRequestHandlerPool,name=BrokerRequestHandlerAvgIdlePercent",
)
GROUP_COORDINATOR_IDLE: Final = gauge(
    "kafka_server_group_coordinator_metrics_thread_idle_ratio_avg",
    "Idle time of the group coordinator, as a share (0 to 1): it runs in the request handlers",
    bean="kafka.server:type=group-coordinator-metrics",
)
LOOP_BUSY: Final = gauge(
    "ottla_loop_busy_ratio", "The part (0 to 1) of the last minutes in which the event loop worked"
)
MEMORY_AVAILABLE: Final = gauge(
    "kafka_network_socketserver_memorypoolavailable",
    "Bytes of queued.max.request.bytes that no request holds",
    bean="kafka.network:type=SocketServer,name=MemoryPoolAvailable",
)
MEMORY_USED: Final = gauge(
    "kafka_network_socketserver_memorypoolused",
    "Bytes that requests hold",
    bean="kafka.network:type=SocketServer,name=MemoryPoolUsed",
)
BLOCKED: Final = count(
    "kafka_network_acceptor_acceptorblockedpercent_count",
    "Nanoseconds in which a limit on connections kept the listener from accepting",
    "listener",
    bean="kafka.network:type=Acceptor,name=AcceptorBlockedPercent,listener=*",
)
_SOCKET_SERVER: Final = "kafka.server:type=socket-server-metrics"


def _total(name: str, help: str) -> Family:
    return counter(
        f"kafka_server_socket_server_metrics_{name}_total",
        help,
        "listener",
        "networkProcessor",
        bean=f"{_SOCKET_SERVER},listener=*,networkProcessor=*",
    )


def _gauge(name: str, help: str) -> Family:
    return gauge(
        f"kafka_server_socket_server_metrics_{name}",
        help,
        "listener",
        "networkProcessor",
        bean=f"{_SOCKET_SERVER},listener=*,networkProcessor=*",
    )


_TOTALS: Final = {
    "connections_created": _total("connection_creation", "Connections made"),
    "connections_closed": _total("connection_close", "Connections closed"),
    "bytes_received": _total("incoming_byte", "Bytes received"),
    "bytes_sent": _total("outgoing_byte", "Bytes sent"),
    "requests_received": _total("request", "Requests received"),
    "responses_sent": _total("response", "Answers sent"),
}
_RATES: Final = {
    name: _gauge(f"{name_in_kafka}_rate", f"{family.help}, a second, in the last minutes")
    for (name, family), name_in_kafka in zip(
        _TOTALS.items(),
        ("connection_creation", "connection_close", "incoming_byte", "outgoing_byte", "request", "response"),
        strict=True,
    )
}
CONNECTIONS: Final = _gauge("connection_count", "Connections that are open")
REQUEST_SIZE: Final = _gauge("request_size_avg", "Bytes of a request on the average, in the last minutes")
SOFTWARE: Final = gauge(
    "kafka_server_socket_server_metrics_connections_software",
    "Open connections, by the software that the client names in ApiVersions",
    "clientSoftwareName",
    "clientSoftwareVersion",
    "listener",
    "networkProcessor",
    bean=f"{_SOCKET_SERVER},clientSoftwareName=*,clientSoftwareVersion=*,listener=*,networkProcessor=*",
)
ACCEPT_RATE: Final = gauge(
    "kafka_server_socket_server_metrics_connection_accept_rate",
    "Connections accepted a second, in the last minutes",
    "listener",
    bean=f"{_SOCKET_SERVER},listener=*",
)
BROKER_ACCEPT_RATE: Final = gauge(
    "kafka_server_socket_server_metrics_broker_connection_accept_rate",
    "Connections accepted a second on all listeners, in the last minutes",
    bean=_SOCKET_SERVER,
)
EXPIRED: Final = counter(
    "ottla_network_connections_idled_out_total",
    "Connections closed because nothing came or went for connections.max.idle.ms",
    "listener",
)
REFUSED: Final = counter(
    "ottla_network_connections_refused_total",
    "Connections turned away because their address has too many (max.connections.per.ip)",
    "listener",
)

Place = tuple[str, str]
"""Names of listener and processor."""
Counter_ = tuple[str, str, str]
"""Names of listener and processor, and of the count."""


class Network:
    """Reads processors, acceptors, the request channel and the handlers."""

    families: tuple[Family, ...] = (
        REQUEST_QUEUE, RESPONSE_QUEUE, PROCESSOR_IDLE, PROCESSORS_IDLE, HANDLERS_IDLE, BROKER_HANDLERS_IDLE,
        GROUP_COORDINATOR_IDLE, LOOP_BUSY, MEMORY_AVAILABLE, MEMORY_USED, BLOCKED, CONNECTIONS, *_TOTALS.values(),
        *_RATES.values(), REQUEST_SIZE, SOFTWARE, ACCEPT_RATE, BROKER_ACCEPT_RATE, EXPIRED, REFUSED,
    )  # fmt: skip

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._busy: Past[str] = Past(sources.clock, sources.started_ms, self._busy_us)
        self._counts: Past[Counter_] = Past(sources.clock, sources.started_ms, self._totals)
        self._accepted: Past[str] = Past(sources.clock, sources.started_ms, self._accepted_so_far)
        for past in (self._busy, self._counts, self._accepted):
            sources.on_period.append(past.period_is_over)

    def collect(self) -> Iterator[Samples]:
        yield from self._queues()
        yield from self._idle()
        yield from self._connections()
        yield from self._accepting()

    def _queues(self) -> Iterator[Samples]:
        sources = self._sources
        yield one(REQUEST_QUEUE, len(sources.channel))
        waiting = {str(processor.index): processor.waiting_responses for processor in sources.processors}
        yield Samples(
            RESPONSE_QUEUE,
            [((), sum(waiting.values())), *[((processor,), number) for processor, number in waiting.items()]],
        )
        memory = sources.processors[0].memory
        yield one(MEMORY_AVAILABLE, memory.available_bytes)
        yield one(MEMORY_USED, memory.used_bytes)

    def _idle(self) -> Iterator[Samples]:
        """The idle parts of network and handlers. Both share one loop: work for one is no idle time of the other."""
        busy = {name: us / _US_PER_S for name, us in self._busy.rates().items()}
        loop = min(busy.pop(_LOOP), 1.0)
        idle = {name: _idle_part(1 - loop, part) for name, part in busy.items()}
        handlers = idle.pop(_HANDLERS)
        yield Samples(PROCESSOR_IDLE, [((processor,), part) for processor, part in idle.items()])
        yield one(PROCESSORS_IDLE, sum(idle.values()) / len(idle))
        yield one(HANDLERS_IDLE, handlers)
        yield one(BROKER_HANDLERS_IDLE, handlers)
        yield one(GROUP_COORDINATOR_IDLE, handlers)
        yield one(LOOP_BUSY, loop)

    def _busy_us(self) -> dict[str, int]:
        sources = self._sources
        handlers = sources.handlers
        return {
            _LOOP: loop_busy_us(),
            _HANDLERS: 0 if handlers is None else handlers.stats.busy_us,
            **{str(processor.index): processor.stats.busy_us for processor in sources.processors},
        }

    def _connections(self) -> Iterator[Samples]:
        totals, rates = self._totals(), self._counts.rates()
        for name, family in _TOTALS.items():
            yield Samples(family, [(place(key), value) for key, value in totals.items() if key[2] == name])
        for name, family in _RATES.items():
            yield Samples(family, [(place(key), value) for key, value in rates.items() if key[2] == name])
        yield Samples(
            REQUEST_SIZE,
            [
                (place(key), rates[*place(key), "bytes_received"] / value if value else 0)
                for key, value in rates.items()
                if key[2] == "requests_received"
            ],
        )
        connections: Counter[Place] = Counter({place(key): 0 for key in totals})
        software = Counter({(*UNKNOWN_SOFTWARE, *here): 0 for here in connections})
        for processor in self._sources.processors:
            index = str(processor.index)
            for connection in processor:
                session = connection.session
                connections[session.peer.listener, index] += 1
                software[*session.software, session.peer.listener, index] += 1
        yield Samples(CONNECTIONS, list(connections.items()))
        yield Samples(SOFTWARE, software.most_common(MOST_SOFTWARE))

    def _totals(self) -> dict[Counter_, int]:
        return {
            (listener, str(processor.index), name): getattr(stats, name)
            for processor in self._sources.processors
            for listener, stats in processor.stats.listeners.items()
            for name in _TOTALS
        }

    def _accepting(self) -> Iterator[Samples]:
        acceptors = self._sources.acceptors
        yield Samples(BLOCKED, [((one.listener,), one.stats.blocked_ms * _NS_PER_MS) for one in acceptors])
        rates = self._accepted.rates()
        yield Samples(ACCEPT_RATE, [((listener,), rate) for listener, rate in rates.items()])
        yield one(BROKER_ACCEPT_RATE, sum(rates.values()))
        yield Samples(REFUSED, [((one.listener,), one.stats.refused) for one in acceptors])
        expired: Counter[str] = Counter({one.listener: 0 for one in acceptors})
        for processor in self._sources.processors:
            for listener, stats in processor.stats.listeners.items():
                expired[listener] += stats.connections_expired
        yield Samples(EXPIRED, [((listener,), number) for listener, number in expired.items()])

    def _accepted_so_far(self) -> dict[str, int]:
        return {acceptor.listener: acceptor.stats.accepted for acceptor in self._sources.acceptors}


_LOOP: Final = "loop"
_HANDLERS: Final = "handlers"
_SCHEDULED: Final = Path("/proc/thread-self/schedstat")


def place(key: Counter_) -> Place:
    """The listener and processor of a count."""
    return key[0], key[1]


def loop_busy_us() -> int:
    """Microseconds that this thread, the loop's, has worked. Where the system has that figure, the time in which the
    thread waited for a processor counts too."""
    try:
        worked_ns, waited_ns, _ = _SCHEDULED.read_text().split()
    except (OSError, ValueError):
        return time.thread_time_ns() // _NS_PER_US
    return (int(worked_ns) + int(waited_ns)) // _NS_PER_US


def _idle_part(left: float, busy: float) -> float:
    """The idle part of a thread that was ``busy`` for a part of the time, when the loop was idle for ``left`` of it."""
    return left / (left + busy) if left + busy else 0.0
