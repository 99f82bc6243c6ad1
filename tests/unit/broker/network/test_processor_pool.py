"""Processors come and go while the others work."""

import asyncio
import socket
from contextlib import ExitStack

import pytest

from broker.network.buffer_pool import BufferPool, RequestMemory
from broker.network.connection_limits import ConnectionLimits
from broker.network.processor import Processor
from broker.network.processor_pool import ProcessorPool
from broker.network.processor_state import NetworkSettings
from broker.network.transport import PlaintextTransport
from broker.request.channel import RequestChannel
from broker.request.session import Peer, Session
from broker.runtime.manual_clock import ManualClock
from tests.unit.broker.network.harness import on_both_loops


def session() -> Session:
    return Session(Peer(host="10.0.0.1", port=4711, listener="PLAINTEXT"))


def pool_of(size: int) -> ProcessorPool:
    loop = asyncio.get_running_loop()
    buffers = BufferPool(RequestMemory(1 << 20, loop.call_soon, ManualClock()), ManualClock())
    limits = ConnectionLimits()

    def make(index: int) -> Processor:
        return Processor(
            index,
            loop=loop,
            clock=ManualClock(),
            channel=RequestChannel(500),
            pool=buffers,
            settings=NetworkSettings(),
            limits=limits,
        )

    return ProcessorPool(make, size)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@on_both_loops
async def test_there_are_as_many_as_wanted_before_and_after_the_start() -> None:
    pool = pool_of(3)
    acceptors_list = pool.processors
    pool.resize(2)
    running = asyncio.ensure_future(pool.run())
    await settle()
    pool.resize(5)
    assert [processor.index for processor in acceptors_list] == [0, 1, 2, 3, 4]
    pool.resize(1)
    await settle()
    assert [processor.index for processor in acceptors_list] == [0]
    pool.close()
    await running


@on_both_loops
async def test_one_that_goes_closes_its_connections_and_the_others_keep_theirs() -> None:
    pool = pool_of(2)
    running = asyncio.ensure_future(pool.run())
    await settle()
    with ExitStack() as peers:
        staying, going = (
            processor.adopt(PlaintextTransport(_connected(peers)), session()) for processor in pool.processors
        )

        pool.resize(1)
        await settle()

        assert (staying.is_closed, going.is_closed) == (False, True)
        pool.close()
        await running


@on_both_loops
async def test_what_goes_wrong_in_a_late_processor_comes_out_of_run() -> None:
    pool = pool_of(1)
    running = asyncio.ensure_future(pool.run())
    await settle()
    pool.resize(2)
    await settle()

    pool.processors[1]._end.set_exception(RuntimeError("broken"))

    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await running


def _connected(peers: ExitStack) -> socket.socket:
    """One end of a connection; the other stays open as long as ``peers``, or this one would close by itself."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    peers.enter_context(theirs)
    return ours
