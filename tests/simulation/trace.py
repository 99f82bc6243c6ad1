"""Trace: what has happened in a run, as a hash that two runs of one seed have in common, and as lines where wanted."""

from zlib import crc32

from tests.simulation.loop import SimulatedLoop


class Trace:
    """Takes every event in its order."""

    def __init__(self, loop: SimulatedLoop, *, keeps_lines: bool = False) -> None:
        self._loop = loop
        self._hash = 0
        self.events = 0
        self.lines: list[str] | None = [] if keeps_lines else None

    def add(self, what: str, data: bytes | bytearray | memoryview = b"") -> None:
        """Something happens now; ``data`` are the bytes that it moves."""
        self.events += 1
        line = f"{self._loop.time():.6f} {self._loop.turns} {what}"
        self._hash = crc32(data, crc32(line.encode(), self._hash))
        if self.lines is not None:
            self.lines.append(f"{line} [{len(data)} bytes, {crc32(data):08x}]" if data else line)

    @property
    def digest(self) -> str:
        """The hash over all events with their times."""
        return f"{self._hash:08x}"
