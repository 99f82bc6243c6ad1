"""InitProducerId through the codec."""

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.broker import InProcessBroker


def request(transactional_id: str | None = None) -> InitProducerIdRequest:
    """What a producer asks at its start."""
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)


@serves(InitProducerIdRequest)
@every_version(InitProducerIdRequest)
def test_every_producer_gets_an_id_of_its_own(broker: InProcessBroker, version: int) -> None:
    answers = [broker.ask(request(), version) for _ in range(3)]
    assert [answer.error_code for answer in answers] == [E.NONE] * 3
    assert [answer.producer_epoch for answer in answers] == [0, 0, 0]
    first = answers[0].producer_id
    assert [answer.producer_id for answer in answers] == [first, first + 1, first + 2]


def test_no_id_is_given_out_twice_even_after_a_restart(broker: InProcessBroker) -> None:
    before = {broker.ask(request(), 4).producer_id for _ in range(5)}
    broker.restart()
    after = {broker.ask(request(), 4).producer_id for _ in range(5)}
    assert not before & after


def test_ids_go_on_beyond_a_block(broker: InProcessBroker) -> None:
    ids = [broker.ask(request(), 4).producer_id for _ in range(1100)]
    assert len(set(ids)) == 1100


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(5, -1), (-1, 5), (-2, -1)])
def test_a_producer_id_and_its_epoch_come_together(
    broker: InProcessBroker, producer_id: int, producer_epoch: int
) -> None:
    asked = request()
    asked.producer_id, asked.producer_epoch = producer_id, producer_epoch
    answer = broker.ask(asked, 4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (E.INVALID_REQUEST, -1, -1)


@serves(InitProducerIdRequest, E.INVALID_REQUEST, versions=[4])
def test_an_empty_transactional_id_is_refused(broker: InProcessBroker) -> None:
    assert broker.ask(request(""), 4).error_code == E.INVALID_REQUEST
