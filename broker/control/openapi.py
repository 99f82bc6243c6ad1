"""The description of the calls as an OpenAPI 3.1 document."""

from collections.abc import Iterable
from typing import Any

from broker.control.arguments import schema_of
from broker.control.calls import CHANGES, Call


def described(calls: Iterable[Call]) -> dict[str, Any]:
    """The document that GET /openapi.json answers."""
    paths: dict[str, Any] = {}
    for call in calls:
        operation: dict[str, Any] = {
            "summary": call.summary,
            "operationId": call.path.strip("/").replace("/", "_").replace("-", "_"),
            "responses": {
                "200": {"description": "It is done.", "content": _json({"type": "object"})},
                "400": {"description": "An argument is wrong; the sentence names it.", "content": _ERROR},
                "409": {"description": "It cannot be done now.", "content": _ERROR},
            },
        }
        if call.method == CHANGES:
            operation["requestBody"] = {"content": _json(schema_of(call.arguments))}
        paths.setdefault(call.path, {})[call.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ottla's control listener", "version": "1", "description": __doc__},
        "paths": paths,
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


_ERROR = _json({"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]})
