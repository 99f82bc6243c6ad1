"""Marks for the API, versions and error codes that a test reaches; they are checked against the broker's answers."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.schema import describe


def every_version(
    request_class: type[Any], *, since: int | None = None, until: int | None = None
) -> pytest.MarkDecorator:
    """Run the test in each version of the API as ``version``."""
    first, last = describe(request_class).versions
    return pytest.mark.parametrize(
        "version", range(first if since is None else since, (last if until is None else until) + 1)
    )


def serves(request_class: type[Any], *errors: ErrorCode, versions: Iterable[int] = ()) -> pytest.MarkDecorator:
    """Mark a test that gets an answer to ``request_class`` with each of ``errors`` (NONE if none is named).

    The version is the test's ``version`` parameter, or ``versions``. `broker` in the handlers' conftest fails the test
    if the broker never gave such an answer.
    """
    return pytest.mark.serves(
        api=describe(request_class).key, versions=tuple(versions), errors=errors or (ErrorCode.NONE,)
    )


class Served(NamedTuple):
    """One claim of one test."""

    api_key: int
    version: int
    error: ErrorCode
    test: str


def claims(item: pytest.Item) -> Iterator[Served]:
    """The claims of a test's marks."""
    callspec: Any = getattr(item, "callspec", None)
    for mark in item.iter_markers("serves"):
        versions = mark.kwargs["versions"] or (callspec.params["version"],)
        test = item.nodeid.partition("[")[0]
        for version in versions:
            for error in mark.kwargs["errors"]:
                yield Served(mark.kwargs["api"], version, error, test)


def assert_served(item: pytest.Item, answered: Collection[tuple[int, int, int]]) -> None:
    """Fail unless a marked test reached what it claims; ``answered`` has API key, version and error of every answer."""
    missed = [
        f"{ApiKey(claim.api_key).name} v{claim.version} {claim.error.name}"
        for claim in claims(item)
        if (claim.api_key, claim.version, claim.error) not in answered
    ]
    assert not missed, f"the test is marked with answers that the broker never gave: {', '.join(missed)}"
