"""What cannot be done to the compiled broker (`make test-compiled`): putting something else in place of its parts."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from dev.broker_process import PACKAGES, REPOSITORY


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if PACKAGES == REPOSITORY:
        return
    for item in items:
        if item.get_closest_marker("sources_only") is not None:
            item.add_marker(pytest.mark.skip(reason="needs the sources"))


@pytest.fixture(autouse=PACKAGES != REPOSITORY, scope="session")
def _only_sources_are_patched() -> Iterator[None]:
    """Compiled code calls its own directly, so such a patch would be taken and not felt."""
    set_attribute = pytest.MonkeyPatch.setattr

    def set_if_felt(patch: pytest.MonkeyPatch, target: Any, *words: Any, **named: Any) -> None:
        if _is_compiled(target):
            pytest.skip(f"replaces a part of {target}, which is compiled")
        set_attribute(patch, target, *words, **named)

    with pytest.MonkeyPatch.context() as whole_run:
        whole_run.setattr(pytest.MonkeyPatch, "setattr", set_if_felt)
        yield


def _is_compiled(target: object) -> bool:
    if isinstance(target, str):
        target = sys.modules.get(target.rpartition(".")[0])
    if not isinstance(target, ModuleType):
        target = sys.modules[(target if isinstance(target, type) else type(target)).__module__]
    return (getattr(target, "__file__", None) or "").endswith(".so") and str(PACKAGES) in str(target.__file__)
