"""Forwarding: what only controllers decide is asked of them in the client's name, and answered with their answer.

KIP-590 has it. What is forwarded is read here first, so that a malformed request ends the client's connection only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, TypeAlias

from broker.controller.config_alteration import Alteration, AlterationResult, Replacement
from broker.membership.forwarder import ForwardedClient, Forwarder, ForwardingFailed, NotForwardable
from broker.request.context import RequestContext, TellsThrottleTime
from protocol.errors import ErrorCode
from protocol.headers import decode_response, encode_request, frame_response
from protocol.messages import (
    acls,
    client_quotas,
    delegation_tokens,
    elections,
    features,
    quorum,
    reassignments,
    registrations,
    scram_credentials,
    topics,
)
from protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from protocol.primitives import received
from protocol.schema import describe, response_class

log = logging.getLogger(__name__)

DECLARATIONS: Final = (
    acls, client_quotas, delegation_tokens, elections, features, quorum, reassignments, registrations,
    scram_credentials, topics,
)  # fmt: skip
"""The modules with the messages that are forwarded. Their own handlers, which import them, are not used here."""

_SIZE: Final = Struct(">i")

Wanted: TypeAlias = Sequence[Alteration | Replacement]


class ForwardingHandler:
    """Handles the requests that are forwarded. A request under way is one coroutine; its slot waits for the answer."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self._under_way: set[asyncio.Task[None]] = set()

    def forward(self, request: Any, context: RequestContext) -> None:
        """Answer with what the controllers' leader answers, or close the connection where the leader does not know the
        request's version."""
        version = context.api_version
        kind = response_class(describe(type(request)).key)

        def answered(response: bytes) -> None:
            answer = decode_response(kind, version, response)[1]
            charged_ms = context.charge()  # as in Kafka: this broker's time here, everything else by the controller
            if isinstance(answer, TellsThrottleTime):
                if answer.throttle_time_ms > 0:
                    context.throttle(answer.throttle_time_ms)
                if charged_ms > answer.throttle_time_ms:
                    answer.throttle_time_ms = charged_ms
                    response = b"".join(map(received, frame_response(context.correlation_id, answer, version)))[4:]
            context.count_errors(answer)
            context.slot.fill((_SIZE.pack(len(response)), response))

        self._send(bytes(context.slot.frame), request, context, answered)

    def alter_configs(
        self,
        wanted: Wanted,
        context: RequestContext,
        *,
        validate_only: bool,
        then: Callable[[list[AlterationResult]], None],
    ) -> None:
        """Have the controllers change the configs of some of the resources that the request of ``context`` names."""
        if not wanted:
            then([])
            return
        request = _request(wanted, validate_only=validate_only)
        version = context.api_version
        kind = response_class(describe(type(request)).key)

        def answered(response: bytes) -> None:
            answer = decode_response(kind, version, response)[1]
            results = {
                (one.resource_type, one.resource_name): AlterationResult(ErrorCode(one.error_code), one.error_message)
                for one in answer.responses
            }
            lost = AlterationResult(ErrorCode.UNKNOWN_SERVER_ERROR)
            then([results.get((one.resource.type, one.resource.name), lost) for one in wanted])

        frame = encode_request(context.correlation_id, context.client_id, request, version)[_SIZE.size :]
        self._send(frame, request, context, answered)

    def close(self) -> None:
        """Forward nothing more; requests under way get no answer."""
        for task in self._under_way:
            task.cancel()

    def _send(self, frame: bytes, request: object, context: RequestContext, answered: Callable[[bytes], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._exchange(frame, request, context, answered))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _exchange(
        self, frame: bytes, request: object, context: RequestContext, answered: Callable[[bytes], None]
    ) -> None:
        client = ForwardedClient.of(context).request(frame)
        try:
            answered(await self._forwarder.forward(client))
        except NotForwardable as error:
            context.close_connection(str(error))
        except ForwardingFailed as error:
            log.warning("a request of %s was not answered by the controllers: %s", context.peer, error)
            context.refuse(request, ErrorCode.REQUEST_TIMED_OUT, str(error))
        except Exception as error:
            log.exception("a request of %s met a bug behind the controllers' answer", context.peer)
            if not context.slot.is_filled:
                context.close_connection(f"its request met a bug: {error}")


def _request(wanted: Wanted, *, validate_only: bool) -> IncrementalAlterConfigsRequest | AlterConfigsRequest:
    """The request with these changes, of which all are of one kind."""
    of_changes = IncrementalAlterConfigsRequest.Resource
    changes = [
        of_changes(
            resource_type=one.resource.type,
            resource_name=one.resource.name,
            configs=[
                of_changes.Config(name=change.name, config_operation=change.operation, value=change.value)
                for change in one.changes
            ],
        )
        for one in wanted
        if isinstance(one, Alteration)
    ]
    if changes:
        return IncrementalAlterConfigsRequest(resources=changes, validate_only=validate_only)
    of_configs = AlterConfigsRequest.Resource
    return AlterConfigsRequest(
        resources=[
            of_configs(
                resource_type=one.resource.type,
                resource_name=one.resource.name,
                configs=[of_configs.Config(name=name, value=value) for name, value in one.configs],
            )
            for one in wanted
            if isinstance(one, Replacement)
        ],
        validate_only=validate_only,
    )
