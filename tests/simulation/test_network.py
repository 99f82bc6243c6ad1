"""The simulated network: bytes in their order, lost connections, partitions, and machines that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import cast

import pytest

from broker.network.socket_options import SocketOptions
from broker.peers.connector import PeerTransport
from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from storage.batch.records import Record, encode_batch
from storage.files import FileSystem
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import (
    CRC_COVERS_FROM,
    SimulatedConnector,
    SimulatedListener,
    SimulatedNetwork,
    SimulatedSocket,
    Weather,
)
from tests.simulation.process import SimulatedProcess
from tests.simulation.trace import Trace

FAIR = Weather(loss_share=0.0)
SERVER = PeerEndpoint(UNKNOWN_ID, "server", 9092)


class Receiver(asyncio.BufferedProtocol):
    """What a client has received."""

    def __init__(self) -> None:
        self.memory = bytearray(1 << 16)
        self.data = b""
        self.is_lost = asyncio.Event()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.memory)

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.memory[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost.set()


class World:
    """A client, and a server that sends back what it receives."""

    def __init__(self, seed: int, weather: Weather = FAIR) -> None:
        self.loop = SimulatedLoop()
        self.network = SimulatedNetwork(self.loop, Random(seed), Trace(self.loop))
        self.network.weather = weather
        self.client = SimulatedProcess("client")
        self.server = SimulatedProcess("server")
        self.server.call(self.listen)

    def listen(self) -> None:
        listener = cast(SimulatedListener, self.network.bind("", 9092, SocketOptions()))
        listener.listen(10)

        def accept() -> None:
            accepted, _ = listener.accept()
            self.loop.add_reader(accepted.fileno(), echo, accepted)

        def echo(accepted: SimulatedSocket) -> None:
            memory = bytearray(1 << 16)
            try:
                received = accepted.recv_into(memoryview(memory))
            except ConnectionResetError:
                received = 0
            rest = memoryview(memory)[:received]
            if not received:
                accepted.close()
            while rest:
                rest = rest[accepted.send(rest) :]

        self.loop.add_reader(listener.fileno(), accept)

    async def connect(self, receiver: Receiver) -> PeerTransport:
        return await SimulatedConnector(self.network).connect(SERVER, receiver)

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Run a scenario as the client."""

        async def main() -> None:
            await self.client.spawn(_awaited(scenario()))

        self.loop.run_until_complete(main())


async def _awaited(awaitable: Awaitable[None]) -> None:
    await awaitable


@pytest.mark.parametrize("seed", range(20))
def test_bytes_arrive_in_their_order(seed: int) -> None:
    world = World(seed)

    async def scenario() -> None:
        receiver = Receiver()
        transport = await world.connect(receiver)
        sent = b""
        for number in range(100):
            piece = b"%d " % number * (number % 7)
            transport.write(piece)
            sent += piece
        await asyncio.sleep(60)
        assert receiver.data == sent
        assert not receiver.is_lost.is_set()

    world.run(scenario)


def test_a_connection_may_be_lost_at_any_byte_and_both_ends_hear_of_it() -> None:
    received: set[int] = set()
    for seed in range(40):
        world = World(seed, Weather(loss_share=0.5))

        async def scenario(world: World = world) -> None:
            receiver = Receiver()
            transport = await world.connect(receiver)
            for _ in range(20):
                transport.write(b"0123456789")
                await asyncio.sleep(0.5)
            async with asyncio.timeout(60):
                await receiver.is_lost.wait()
            received.add(len(receiver.data))

        world.run(scenario)
    assert any(size % 10 for size in received)


@pytest.mark.parametrize("are_brokers", [False, True])
def test_batches_between_brokers_may_be_damaged_where_their_crc_shows_it(are_brokers: bool) -> None:
    world = World(1, Weather(loss_share=0.0, torn_share=0.0, damage_share=1.0))
    if are_brokers:
        world.client.files = world.server.files = FileSystem()
    batch = bytes(encode_batch([Record(timestamp=1, key=b"key", value=b"value")], partition_leader_epoch=3))

    async def scenario() -> None:
        receiver = Receiver()
        transport = await world.connect(receiver)
        transport.write(batch)
        transport.write(bytes(16) + b"\2" + bytes(143))
        await asyncio.sleep(60)
        assert len(receiver.data) == len(batch) + 160
        differing = [at for at, byte in enumerate(batch) if receiver.data[at] != byte]
        assert bool(differing) == are_brokers
        assert all(at >= CRC_COVERS_FROM for at in differing)

    world.run(scenario)


def test_a_partition_holds_everything_until_it_heals() -> None:
    world = World(1)

    async def scenario() -> None:
        receiver = Receiver()
        transport = await world.connect(receiver)
        world.network.part("client", "server")
        transport.write(b"hello")
        await asyncio.sleep(60)
        assert receiver.data == b""
        world.network.heal_all()
        await asyncio.sleep(1)
        assert receiver.data == b"hello"

    world.run(scenario)


def test_a_connection_that_cannot_be_made_fails_in_time() -> None:
    world = World(1)

    async def scenario() -> None:
        world.network.part("client", "server")
        with pytest.raises(TimeoutError):
            await world.connect(Receiver())
        world.network.heal_all()
        nobody = PeerEndpoint(UNKNOWN_ID, "nobody", 1)
        with pytest.raises(ConnectionRefusedError):
            await SimulatedConnector(world.network).connect(nobody, Receiver())

    world.run(scenario)


def test_the_machine_of_a_killed_process_closes_its_connections() -> None:
    world = World(1)

    async def scenario() -> None:
        receiver = Receiver()
        await world.connect(receiver)
        world.network.process_died(world.server, has_power=True)
        world.server.die()
        async with asyncio.timeout(1):
            await receiver.is_lost.wait()
        with pytest.raises(ConnectionRefusedError):
            await world.connect(Receiver())

    world.run(scenario)


def test_a_machine_without_power_says_nothing_until_it_is_on_again() -> None:
    world = World(1)

    async def scenario() -> None:
        receiver = Receiver()
        transport = await world.connect(receiver)
        world.network.without_power.add("server")
        world.network.process_died(world.server, has_power=False)
        world.server.die()
        transport.write(b"are you there?")
        await asyncio.sleep(60)
        assert not receiver.is_lost.is_set()
        world.network.without_power.clear()
        transport.write(b"and now?")
        async with asyncio.timeout(1):
            await receiver.is_lost.wait()

    world.run(scenario)


def test_what_was_sent_before_an_end_arrives_before_it() -> None:
    world = World(3)

    async def scenario() -> None:
        receiver = Receiver()
        transport = await world.connect(receiver)
        transport.write(b"last words")
        await asyncio.sleep(1)
        world.network.process_died(world.server, has_power=True)
        await asyncio.sleep(1)
        assert receiver.data == b"last words"
        assert receiver.is_lost.is_set()

    world.run(scenario)
