"""In which version a node is asked."""

import pytest

from broker.peers.errors import PeerAnswerInvalid, PeerTimedOut, PeerUnreachable
from broker.peers.versions import NodeVersions
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.find_coordinator import FindCoordinatorResponse
from tests.unit.broker.peers.harness import REQUEST_TIMEOUT_MS, by_hand, fetched, find_coordinator, peer, versions


@by_hand
async def test_a_request_with_a_version_asks_nothing_before() -> None:
    async with peer() as it:
        await it.fetch(version=17)
        assert it.wire.asked == ["Fetch 17"]


@by_hand
async def test_a_request_without_a_version_is_sent_in_the_newest_that_both_know() -> None:
    async with peer() as it:
        asked = await it.find_coordinator()
        it.wire.answer(0, versions(find_coordinator=(0, 4)))
        await it.settle()
        assert it.wire.asked == ["ApiVersions 5", "FindCoordinator 4"]
        it.wire.answer(1, FindCoordinatorResponse())
        assert await asked == FindCoordinatorResponse()

        await it.find_coordinator()
        assert it.wire.asked[2:] == ["FindCoordinator 4"], "what a connection has said is known"


@by_hand
async def test_a_node_that_knows_newer_versions_is_asked_in_ours() -> None:
    async with peer() as it:
        await it.find_coordinator()
        it.wire.answer(0, versions(find_coordinator=(2, 99)))
        await it.settle()
        assert it.wire.asked[1:] == ["FindCoordinator 6"]


@by_hand
async def test_those_who_ask_at_once_ask_for_the_versions_once() -> None:
    async with peer() as it:
        for _ in range(3):
            await it.find_coordinator()
        await it.fetch()
        it.wire.answer(0, versions(find_coordinator=(0, 3)))
        await it.settle()
        assert it.wire.asked == ["ApiVersions 5", "Fetch 18", *["FindCoordinator 3"] * 3]


@by_hand
async def test_a_new_connection_is_asked_again_since_the_node_may_have_been_upgraded() -> None:
    async with peer() as it:
        for last in (3, 5):
            await it.find_coordinator()
            await it.advance(50)
            it.wire.answer(0, versions(find_coordinator=(0, last)))
            await it.settle()
            assert it.wire.asked == ["ApiVersions 5", f"FindCoordinator {last}"]
            it.wire.lose()


@by_hand
async def test_no_common_version_names_both_ranges_and_leaves_the_connection_to_others() -> None:
    async with peer() as it:
        other = await it.fetch()
        asked = await it.find_coordinator()
        it.wire.answer(0, fetched(1))
        it.wire.answer(1, versions(find_coordinator=(7, 9)))
        with pytest.raises(PeerAnswerInvalid) as problem:
            await asked
        assert str(problem.value) == (
            "node 3 at kafka-3:9092 knows versions 7 to 9 of FindCoordinator, this broker asks in versions 0 to 6"
        )
        assert (await other).session_id == 1
        assert not it.wire.is_closed


@by_hand
async def test_a_node_without_the_api_is_named() -> None:
    async with peer() as it:
        asked = await it.find_coordinator()
        it.wire.answer(0, versions(fetch=(4, 18)))
        with pytest.raises(PeerAnswerInvalid) as problem:
            await asked
        assert str(problem.value) == (
            "node 3 at kafka-3:9092 knows no version of FindCoordinator, this broker asks in versions 0 to 6"
        )


@by_hand
async def test_versions_and_features_can_be_looked_at() -> None:
    async with peer() as it:
        looking = await it.begin(it.peer.versions())
        answer = versions(fetch=(4, 18), find_coordinator=(0, 6))
        answer.supported_features = [
            ApiVersionsResponse.SupportedFeature(name="metadata.version", min_version=7, max_version=30)
        ]
        answer.finalized_features = [
            ApiVersionsResponse.FinalizedFeature(name="metadata.version", min_version_level=25, max_version_level=25)
        ]
        answer.finalized_features_epoch = 1234
        it.wire.answer(0, answer)
        found = await looking
        assert dict(found) == {1: (4, 18), 10: (0, 6)}
        assert found.supported_features == {"metadata.version": (7, 30)}
        assert found.finalized_features == {"metadata.version": 25}
        assert found.finalized_features_epoch == 1234
        assert await it.peer.versions() is found


# A node that does not know our version of ApiVersions answers with error 35, in version 0


@by_hand
async def test_error_35_is_asked_again_in_the_version_that_the_node_names() -> None:
    async with peer() as it:
        looking = await it.begin(it.peer.versions())
        refusal = versions(api_versions=(0, 4))
        refusal.error_code = ErrorCode.UNSUPPORTED_VERSION
        it.wire.answer(0, refusal, version=0)
        await it.settle()
        it.wire.answer(1, versions(fetch=(4, 17)))
        assert dict(await looking) == {1: (4, 17)}
        assert it.wire.asked == ["ApiVersions 5", "ApiVersions 4"]


@by_hand
async def test_error_35_without_a_list_is_asked_again_in_version_0() -> None:
    async with peer() as it:
        looking = await it.begin(it.peer.versions())
        it.wire.answer(0, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[]), version=0)
        await it.settle()
        it.wire.answer(1, versions(fetch=(0, 11)))
        assert dict(await looking) == {1: (0, 11)}
        assert it.wire.asked == ["ApiVersions 5", "ApiVersions 0"]


@by_hand
async def test_error_35_to_every_version_ends() -> None:
    async with peer() as it:
        looking = await it.begin(it.peer.versions())
        refusal = versions(api_versions=(0, 99))
        refusal.error_code = ErrorCode.UNSUPPORTED_VERSION
        for index in range(6):
            it.wire.answer(index, refusal, version=0)
            await it.settle()
        with pytest.raises(PeerAnswerInvalid, match="answered ApiVersions with error 35"):
            await looking
        assert it.wire.asked == [f"ApiVersions {version}" for version in (5, 4, 3, 2, 1, 0)]


@by_hand
async def test_another_error_is_an_error_for_all_who_wait_for_the_versions() -> None:
    async with peer() as it:
        asked = [await it.find_coordinator(), await it.find_coordinator()]
        it.wire.answer(0, ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, api_keys=[]))
        await it.settle()
        found = [one.exception() for one in asked]
        assert [str(problem) for problem in found] == ["node 3 at kafka-3:9092 answered ApiVersions with error 31"] * 2
        assert found[0] is not found[1]
        assert it.wire.is_closed


@by_hand
async def test_a_node_that_closes_instead_of_naming_its_versions_is_unreachable() -> None:
    async with peer() as it:
        asked = await it.find_coordinator()
        it.wire.lose()
        with pytest.raises(PeerUnreachable, match="closed the connection; ApiVersions version 5 has no answer"):
            await asked


@by_hand
async def test_versions_have_the_request_time_and_a_hastier_request_its_own() -> None:
    async with peer() as it:
        asked = await it.find_coordinator()
        await it.advance(REQUEST_TIMEOUT_MS)
        with pytest.raises(PeerTimedOut, match="did not answer ApiVersions"):
            await asked

        hasty = await it.begin(it.peer.ask(find_coordinator(), FindCoordinatorResponse, timeout_ms=1_050))
        await it.advance(50)  # the back-off
        await it.advance(1_050)
        with pytest.raises(PeerTimedOut, match="did not answer ApiVersions within 1050 ms"):
            await hasty
        assert it.wire.is_closed
        assert it.stats.requests_timed_out == 2


def test_the_newest_common_version() -> None:
    known = NodeVersions(versions(fetch=(4, 12)))
    assert known.newest_common(1, (4, 18)) == 12
    assert known.newest_common(1, (0, 11)) == 11
    assert known.newest_common(1, (12, 18)) == 12
    assert known.newest_common(1, (13, 18)) is None
    assert known.newest_common(1, (0, 3)) is None
    assert known.newest_common(56, (0, 3)) is None
