import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.network.acceptor import REST_MS, Acceptor, CannotListen
from broker.network.buffer_pool import BufferPool, RequestMemory
from broker.network.connection_limits import ConnectionLimits, LimitSettings, UnknownHost, addresses_of
from broker.network.processor import Processor
from broker.network.processor_state import NetworkSettings
from broker.network.socket_options import SocketOptions, bound_socket, is_loopback, leave_unpaced, plain_address
from broker.request.channel import RequestChannel
from broker.runtime.manual_clock import ManualClock
from broker.security.quotas.address_quotas import AddressQuotas
from tests.unit.broker.network.harness import on_both_loops


class House:
    """Acceptors and two processors on 127.0.0.1."""

    def __init__(self, **limits: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = ManualClock()
        self.limits = ConnectionLimits(LimitSettings(**limits))
        buffers = BufferPool(RequestMemory(-1, self.loop.call_soon, self.clock), self.clock)
        self.processors = [
            Processor(
                index,
                loop=self.loop,
                clock=self.clock,
                channel=RequestChannel(500),
                pool=buffers,
                settings=NetworkSettings(),
                limits=self.limits,
                now_us=self.clock.monotonic_us,
            )
            for index in range(2)
        ]
        self.acceptors: list[Acceptor] = []
        self.clients: list[socket.socket] = []

    def listen(self, name: str = "PLAINTEXT", host: str = "127.0.0.1", *, is_for_controllers: bool = False) -> Acceptor:
        acceptor = Acceptor(
            name,
            host,
            0,
            loop=self.loop,
            clock=self.clock,
            processors=self.processors,
            limits=self.limits,
            options=SocketOptions(),
            is_for_controllers=is_for_controllers,
        )
        acceptor.bind()
        acceptor.start()
        self.acceptors.append(acceptor)
        return acceptor

    def connect(self, acceptor: Acceptor) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", acceptor.port))
        client.setblocking(False)
        self.clients.append(client)
        return client

    @property
    def connections(self) -> list[int]:
        return [len(processor) for processor in self.processors]

    async def until(self, condition: Any) -> None:
        for _ in range(20_000):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("what the test waits for has not happened")

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@asynccontextmanager
async def house(**limits: Any) -> AsyncIterator[House]:
    it = House(**limits)
    try:
        yield it
    finally:
        for acceptor in it.acceptors:
            acceptor.close()
        for processor in it.processors:
            processor.close()
        for client in it.clients:
            client.close()


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@on_both_loops
async def test_connections_go_to_the_processors_in_turn() -> None:
    async with house() as it:
        acceptor = it.listen()
        for _ in range(4):
            it.connect(acceptor)
        await it.until(lambda: it.connections == [2, 2])
        assert acceptor.stats.accepted == 4
        (peer, *_) = [connection.peer for connection in it.processors[0]]
        assert peer.host == "127.0.0.1"
        assert peer.listener == "PLAINTEXT"


@on_both_loops
async def test_a_session_knows_whether_it_came_in_on_a_controller_listener() -> None:
    async with house() as it:
        it.connect(it.listen())
        it.connect(it.listen("CONTROLLER", is_for_controllers=True))
        await it.until(lambda: sum(it.connections) == 2)
        sessions = [connection.session for processor in it.processors for connection in processor]
        assert {one.peer.listener: one.is_on_controller_listener for one in sessions} == {
            "PLAINTEXT": False,
            "CONTROLLER": True,
        }


@on_both_loops
async def test_above_max_connections_others_wait_until_one_closes() -> None:
    async with house(max_connections=2) as it:
        acceptor = it.listen()
        clients = [it.connect(acceptor) for _ in range(3)]
        await it.until(lambda: it.limits.total == 2)
        await it.settle()
        assert it.limits.total == 2
        assert not any(map(is_closed, clients)), "the third waits, it is not refused"
        it.clock.advance(70)
        clients[0].close()
        await it.until(lambda: acceptor.stats.accepted == 3)
        assert it.limits.total == 2
        assert acceptor.stats.blocked_ms == 70


@on_both_loops
async def test_an_address_above_its_limit_is_turned_away_at_once() -> None:
    async with house(max_connections_per_ip=2) as it:
        acceptor = it.listen()
        clients = [it.connect(acceptor) for _ in range(3)]
        await it.until(lambda: is_closed(clients[2]))
        assert it.limits.total == 2
        assert acceptor.stats.refused == 1
        clients[0].close()
        await it.until(lambda: it.limits.total == 1)
        it.connect(acceptor)
        await it.until(lambda: it.limits.total == 2)


@on_both_loops
async def test_an_address_may_have_a_limit_of_its_own() -> None:
    async with house(max_connections_per_ip=1, per_ip_overrides={"127.0.0.1": 3}) as it:
        acceptor = it.listen()
        for _ in range(4):
            it.connect(acceptor)
        await it.until(lambda: acceptor.stats.refused == 1)
        assert it.limits.total == 3


@on_both_loops
async def test_the_inter_broker_listener_goes_beyond_the_limit_and_the_idlest_of_the_others_makes_room() -> None:
    async with house(max_connections=2, inter_broker_listener="INTERNAL") as it:
        clients, internal = it.listen("CLIENTS"), it.listen("INTERNAL")
        idlest = it.connect(clients)
        await it.until(lambda: it.limits.total == 1)
        it.clock.advance(5)
        it.connect(clients)
        await it.until(lambda: it.limits.total == 2)
        it.connect(internal)
        await it.until(lambda: is_closed(idlest))
        await it.until(lambda: it.limits.total == 2)
        assert internal.stats.accepted == 1


@on_both_loops
async def test_alone_the_inter_broker_listener_waits_like_any_other() -> None:
    async with house(max_connections=1, inter_broker_listener="PLAINTEXT") as it:
        acceptor = it.listen()
        clients = [it.connect(acceptor) for _ in range(2)]
        await it.until(lambda: it.limits.total == 1)
        await it.settle()
        assert it.limits.total == 1
        assert not any(map(is_closed, clients))


@on_both_loops
async def test_a_listener_may_have_a_limit_of_its_own_and_the_others_go_on() -> None:
    async with house(per_listener={"FEW": 1}) as it:
        few, many = it.listen("FEW"), it.listen("MANY")
        clients = [it.connect(few) for _ in range(2)]
        for _ in range(3):
            it.connect(many)
        await it.until(lambda: many.stats.accepted == 3)
        await it.settle()
        assert few.stats.accepted == 1
        assert not is_closed(clients[1]), "it waits"
        clients[0].close()
        await it.until(lambda: few.stats.accepted == 2)


@on_both_loops
async def test_more_new_connections_a_second_than_allowed_are_delayed_until_the_rate_is_right_again() -> None:
    # Of 11 windows ten count at least: at 1 a second the eleventh at once is 1.1 a second, 0.1 * 10 s too early.
    async with house(max_creation_rate=1) as it:
        acceptor = it.listen()
        clients = [it.connect(acceptor) for _ in range(12)]
        await it.until(lambda: acceptor.stats.delayed == 1)
        await it.settle()
        assert acceptor.stats.accepted == 10
        assert not any(map(is_closed, clients)), "it is late, not refused"
        it.clock.advance(999)
        await it.settle()
        assert acceptor.stats.accepted == 10
        it.clock.advance(1)
        assert acceptor.stats.accepted == 11
        assert acceptor.stats.blocked_ms == 1_000
        await it.until(lambda: acceptor.stats.delayed == 2)


@on_both_loops
async def test_nobody_is_delayed_for_longer_than_a_window_not_even_where_no_connection_is_allowed() -> None:
    async with house(max_creation_rate=0) as it:
        acceptor = it.listen()
        it.connect(acceptor)
        await it.until(lambda: acceptor.stats.delayed == 1)
        it.clock.advance(1_000)
        assert acceptor.stats.accepted == 1


@on_both_loops
async def test_a_listener_may_have_a_rate_of_its_own_and_the_others_go_on() -> None:
    async with house(creation_rate_per_listener={"SLOW": 1}) as it:
        slow, fast = it.listen("SLOW"), it.listen("FAST")
        for _ in range(11):
            it.connect(slow)
            it.connect(fast)
        await it.until(lambda: fast.stats.accepted == 11)
        await it.until(lambda: slow.stats.delayed == 1)
        assert slow.stats.accepted == 10
        assert fast.stats.delayed == 0


@on_both_loops
async def test_an_address_above_its_quota_is_let_go_after_a_while_and_the_others_go_on() -> None:
    async with house() as it:
        quotas = AddressQuotas(windows=11, window_ms=1_000)
        quotas.update({"127.0.0.1": 1.0})
        it.limits.of_addresses = quotas
        acceptor = it.listen()
        clients = [it.connect(acceptor) for _ in range(12)]
        await it.until(lambda: acceptor.stats.refused == 2)
        assert acceptor.stats.accepted == 10
        it.clock.advance(999)
        assert not any(is_closed(client) for client in clients)
        it.clock.advance(1)
        assert [is_closed(client) for client in clients] == [*[False] * 10, True, True]
        quotas.update({"": 1.0, "127.0.0.1": 1_000.0})
        it.connect(acceptor)
        await it.until(lambda: acceptor.stats.accepted == 11)


@on_both_loops
async def test_the_inter_broker_listener_is_not_counted_in_the_rate_of_all() -> None:
    async with house(max_creation_rate=1, inter_broker_listener="INTERNAL") as it:
        clients, internal = it.listen("CLIENTS"), it.listen("INTERNAL")
        for _ in range(20):
            it.connect(internal)
        await it.until(lambda: internal.stats.accepted == 20)
        for _ in range(10):
            it.connect(clients)
        await it.until(lambda: clients.stats.accepted == 10)
        assert clients.stats.delayed == internal.stats.delayed == 0


@on_both_loops
async def test_a_delayed_connection_waits_on_where_there_is_no_room_meanwhile() -> None:
    async with house(max_creation_rate=1, max_connections=11) as it:
        slow, other = it.listen("SLOW"), it.listen("OTHER")
        clients = [it.connect(slow) for _ in range(11)]
        await it.until(lambda: slow.stats.delayed == 1)
        it.limits.update(LimitSettings(max_connections=10))
        it.clock.advance(1_000)
        await it.settle()
        assert (slow.stats.accepted, other.stats.accepted) == (10, 0)
        clients[0].close()
        await it.until(lambda: slow.stats.accepted == 11)


@on_both_loops
async def test_a_delayed_connection_closes_with_its_listener() -> None:
    async with house(max_creation_rate=0) as it:
        acceptor = it.listen()
        client = it.connect(acceptor)
        await it.until(lambda: acceptor.stats.delayed == 1)
        acceptor.close()
        assert is_closed(client)
        assert it.clock.alarms == 0


@on_both_loops
async def test_a_higher_limit_lets_in_who_waits() -> None:
    async with house(max_connections=1) as it:
        acceptor = it.listen()
        for _ in range(3):
            it.connect(acceptor)
        await it.until(lambda: it.limits.total == 1)
        it.limits.update(LimitSettings(max_connections=2))
        await it.until(lambda: it.limits.total == 2)
        it.limits.update(LimitSettings())
        await it.until(lambda: it.limits.total == 3)


@on_both_loops
async def test_a_lower_limit_closes_the_idlest_except_between_brokers() -> None:
    async with house(inter_broker_listener="INTERNAL") as it:
        clients, internal = it.listen("CLIENTS"), it.listen("INTERNAL")
        it.connect(internal)
        await it.until(lambda: it.limits.total == 1)
        connected = []
        for number in range(2, 5):
            it.clock.advance(5)
            connected.append(it.connect(clients))
            await it.until(lambda number=number: it.limits.total == number)
        it.limits.update(LimitSettings(max_connections=2, inter_broker_listener="INTERNAL"))
        assert it.limits.total == 2
        await it.until(lambda: is_closed(connected[0]) and is_closed(connected[1]))
        assert not is_closed(connected[2])


@on_both_loops
async def test_a_lower_limit_of_an_address_holds_for_new_connections_only() -> None:
    async with house() as it:
        acceptor = it.listen()
        first = [it.connect(acceptor) for _ in range(2)]
        await it.until(lambda: it.limits.total == 2)
        it.limits.update(LimitSettings(max_connections_per_ip=1))
        refused = it.connect(acceptor)
        await it.until(lambda: is_closed(refused))
        assert not any(map(is_closed, first))


def test_a_host_in_the_overrides_stands_for_its_first_address_ipv4_before_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolver(host: str, *_: object, **__: object) -> list[tuple[Any, ...]]:
        assert host == "db.example"
        six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::7", 0, 0, 0))
        four = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"10.0.0.{number}", 0)) for number in (7, 8)]
        return [six, *four]

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    assert addresses_of({"db.example": 5}) == {"10.0.0.7": 5}


def test_addresses_in_the_overrides_are_read_in_every_spelling() -> None:
    assert addresses_of({"10.0.0.7": 1, "0:0:0:0:0:0:0:1": 2, "[fd00::0:7]": 3, "::ffff:10.0.0.8": 4}) == {
        "10.0.0.7": 1,
        "::1": 2,
        "fd00::7": 3,
        "10.0.0.8": 4,
    }


def test_a_host_without_an_address_is_named() -> None:
    with pytest.raises(UnknownHost, match=r"overrides names no-such-host\.invalid, which has no address \("):
        addresses_of({"no-such-host.invalid": 5})


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EPERM])
@on_both_loops
async def test_out_of_what_the_system_has_it_rests_and_recovers(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house() as it:
        acceptor = it.listen()
        calls = 0

        def exhausted(_self: socket.socket) -> None:
            nonlocal calls
            calls += 1
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, "accept", exhausted)
            it.connect(acceptor)
            await it.until(lambda: acceptor.stats.rests == 1)
            await it.settle()
            assert calls == 1, "it must not spin"
        it.clock.advance(REST_MS - 1)
        await it.settle()
        assert acceptor.stats.accepted == 0
        it.clock.advance(1)
        await it.until(lambda: acceptor.stats.accepted == 1)


@on_both_loops
async def test_a_port_that_is_taken_is_named_in_one_sentence() -> None:
    async with house() as it:
        first = it.listen()
        second = Acceptor(
            "OTHER",
            "127.0.0.1",
            first.port,
            loop=it.loop,
            clock=it.clock,
            processors=it.processors,
            limits=it.limits,
            options=SocketOptions(),
        )
        with pytest.raises(CannotListen, match=rf"OTHER://127\.0\.0\.1:{first.port} cannot be opened: .*in use"):
            second.bind()


@on_both_loops
async def test_nobody_can_connect_between_bind_and_start() -> None:
    async with house() as it:
        acceptor = it.listen()
        port = acceptor.port
        acceptor.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


@pytest.mark.parametrize("host", ["", "0.0.0.0", "0", "::", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0"])
@on_both_loops
async def test_a_listener_on_every_interface_takes_addresses_of_both_families(host: str) -> None:
    async with house() as it:
        acceptor = it.listen(host=host)
        for address in ("127.0.0.1", "::1"):
            it.clients.append(socket.create_connection((address, acceptor.port)))
        await it.until(lambda: it.limits.total == 2)
        peers = {connection.peer.host for processor in it.processors for connection in processor}
        assert peers == {"127.0.0.1", "::1"}


def test_where_there_is_no_ipv6_every_interface_is_those_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    for host in ("", "0.0.0.0", "::"):
        with bound_socket(host, 0, SocketOptions()) as bound:
            assert bound.family == socket.AF_INET
            assert bound.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize(
    ("host", "bound_to"), [("127.0.0.1", "127.0.0.1"), ("::ffff:127.0.0.1", "127.0.0.1"), ("::1", "::1")]
)
def test_an_address_is_only_itself(host: str, bound_to: str) -> None:
    with bound_socket(host, 0, SocketOptions()) as bound:
        address, port = bound.getsockname()[:2]
        assert plain_address(address) == bound_to
        bound.listen()
        for other in {"127.0.0.1", "::1"} - {bound_to}:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((other, port))


def test_addresses_are_written_as_clients_know_them() -> None:
    assert plain_address("::ffff:10.1.2.3") == "10.1.2.3"
    assert plain_address("fe80::1%eth0") == "fe80::1"
    assert plain_address("::1") == "::1"
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "10.0.0.1")] == [True, True, False]


def test_sizes_that_a_user_gives_are_honoured() -> None:
    with socket.socket() as listening, socket.socket() as connected:
        SocketOptions(receive_buffer_bytes=50_000).prepare_listener(listening)
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (50_000, 100_000)
        SocketOptions(send_buffer_bytes=60_000).prepare_connection(connected, "10.0.0.1")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (60_000, 120_000)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not connected.getblocking()


class Sandboxed(socket.socket):
    """A socket that takes none of the options."""

    def setsockopt(self, *_: Any) -> None:  # type: ignore[override]
        raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))

    def getsockopt(self, *_: Any) -> Any:
        raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))


def test_a_sandbox_without_an_option_serves_its_connections() -> None:
    options = SocketOptions(send_buffer_bytes=60_000, receive_buffer_bytes=50_000)
    with Sandboxed() as listening, Sandboxed() as connected:
        options.prepare_listener(listening)
        assert leave_unpaced(listening) is None
        for host in ("127.0.0.1", "10.0.0.1"):
            options.prepare_connection(connected, host, b"bbr")
        assert not connected.getblocking()


class OfThisMachine(socket.socket):
    """A socket of a machine that has no addresses of 192.0.2."""

    def bind(self, address: Any) -> None:
        if address[0].startswith("192.0.2."):
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        super().bind(address)


def addresses(*hosts: str) -> Any:
    """`getaddrinfo` of a name with these addresses."""
    found = [
        (socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, 0)) for host in hosts
    ]
    return lambda *_, **__: found


@pytest.mark.sources_only
def test_a_name_gets_the_first_of_its_addresses_that_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", OfThisMachine)
    monkeypatch.setattr(socket, "getaddrinfo", addresses("192.0.2.1", "127.0.0.1"))
    with bound_socket("localhost", 0, SocketOptions()) as bound:
        assert bound.getsockname()[0] == "127.0.0.1"

    monkeypatch.setattr(socket, "getaddrinfo", addresses("::1", "192.0.2.1", "127.0.0.1"))
    with bound_socket("localhost", 0, SocketOptions()) as bound:
        assert bound.getsockname()[0] == "127.0.0.1", "IPv4 before IPv6, as in Java"

    monkeypatch.setattr(socket, "getaddrinfo", addresses("192.0.2.1", "192.0.2.2"))
    with pytest.raises(OSError, match="requested address") as refused:
        bound_socket("localhost", 0, SocketOptions())
    assert refused.value.errno == errno.EADDRNOTAVAIL


@pytest.mark.sources_only
def test_a_port_that_is_taken_at_one_address_is_not_opened_at_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients would reach another broker, or this one, as their system likes."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        family_and_address = (socket.AF_INET, socket.SOCK_STREAM, 0, "", other.getsockname())
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [family_and_address, *addresses("127.0.0.2")()])
        with pytest.raises(OSError, match="in use"):
            bound_socket("localhost", 0, SocketOptions())


def congestion_control(one: socket.socket) -> bytes:
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@pytest.fixture
def paced_listener() -> Iterator[socket.socket]:
    """As a listener is where the system's congestion control paces."""
    with socket.socket() as listening:
        try:
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
        except (AttributeError, OSError):
            pytest.skip("there is no bbr, or it is not allowed here")
        listening.bind(("127.0.0.1", 0))
        yield listening


def accepted_by(listening: socket.socket) -> tuple[socket.socket, socket.socket]:
    connecting = socket.create_connection(listening.getsockname())
    accepted, _ = listening.accept()
    return connecting, accepted


def test_a_connection_over_loopback_has_never_been_paced(paced_listener: socket.socket) -> None:
    system_control = leave_unpaced(paced_listener)
    paced_listener.listen()
    connecting, accepted = accepted_by(paced_listener)
    with connecting, accepted:
        # Linux goes on pacing a connection that was given another control only after it was made.
        assert congestion_control(accepted) in (b"cubic", b"reno")
        SocketOptions().prepare_connection(accepted, "127.0.0.1", system_control)
        assert congestion_control(accepted) in (b"cubic", b"reno")


def test_a_peer_elsewhere_gets_the_congestion_control_that_the_administrator_chose(
    paced_listener: socket.socket,
) -> None:
    system_control = leave_unpaced(paced_listener)
    assert system_control == b"bbr"
    paced_listener.listen()
    connecting, accepted = accepted_by(paced_listener)
    with connecting, accepted:
        SocketOptions().prepare_connection(accepted, "10.0.0.1", system_control)
        assert congestion_control(accepted) == b"bbr"


def test_where_pacing_cannot_be_helped_answers_are_sent_from_a_larger_buffer(paced_listener: socket.socket) -> None:
    paced_listener.listen()
    connecting, accepted = accepted_by(paced_listener)
    with connecting, accepted:
        SocketOptions().prepare_connection(accepted, "127.0.0.1")
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 262_144


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="the system has no such setting")
def test_a_congestion_control_that_does_not_pace_stays() -> None:
    with socket.socket() as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        assert leave_unpaced(listening) is None
        assert congestion_control(listening) == b"reno"


@on_both_loops
async def test_the_next_connection_finds_a_processor_after_some_have_gone() -> None:
    async with house() as it:
        acceptor = it.listen()
        it.connect(acceptor)
        await it.until(lambda: it.connections == [1, 0])
        gone = it.processors.pop()
        it.connect(acceptor)
        await it.until(lambda: it.connections == [2])
        it.processors.append(gone)
