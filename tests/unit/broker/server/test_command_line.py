import resource

import pytest

from broker.server.command_line import MACOS_OPEN_FILES, OPEN_FILES_UNTOLD, raise_descriptor_limit


class System:
    """What `resource` says and does, with a highest limit of its own."""

    def __init__(self, soft: int, hard: int, highest: int) -> None:
        self.soft = soft
        self.hard = hard
        self.highest = highest

    def getrlimit(self, which: int) -> tuple[int, int]:
        assert which == resource.RLIMIT_NOFILE
        return self.soft, self.hard

    def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
        if not 0 <= limits[0] <= self.highest:
            raise ValueError("current limit exceeds maximum limit")
        self.soft = limits[0]


@pytest.mark.parametrize(
    ("system", "soft", "line"),
    [
        (System(1_024, 20_000, 20_000), 20_000, "up to 20000 open files, raised from 1024"),
        (System(20_000, 20_000, 20_000), 20_000, "up to 20000 open files"),
        (System(256, resource.RLIM_INFINITY, 10_240), MACOS_OPEN_FILES, "up to 10240 open files, raised from 256"),
        (System(50_000, 100_000, 60_000), 50_000, "up to 50000 open files: the limit cannot be raised to 100000"),
    ],
    ids=["linux", "nothing to raise", "macos", "not allowed"],
)
def test_as_many_files_may_be_open_as_the_system_allows(
    system: System, soft: int, line: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(resource, "getrlimit", system.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", system.setrlimit)
    raise_descriptor_limit()
    assert system.soft == soft
    assert caplog.messages == [line]


def test_where_the_system_does_not_tell_the_limit_the_usual_one_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(which: int) -> tuple[int, int]:
        raise OSError("not implemented")

    monkeypatch.setattr(resource, "getrlimit", refuse)
    assert raise_descriptor_limit() == OPEN_FILES_UNTOLD
    assert caplog.messages == ["taken as 1024 open files, since the system does not tell: not implemented"]
