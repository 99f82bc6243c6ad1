"""A file system of a few megabytes for one broker: a tmpfs in a user and mount namespace held by a small process."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.repository import REPOSITORY


class NoSmallDisk(Exception):
    """This machine cannot mount a small file system; the message says why."""


class SmallDisk:
    """A mounted tmpfs. It stays until `close`, also when the processes that use it have ended."""

    def __init__(self, path: Path, *, megabytes: int) -> None:
        """Raises `NoSmallDisk`."""
        self._path = path
        path.mkdir(parents=True, exist_ok=True)
        for tool in ("unshare", "nsenter"):
            if shutil.which(tool) is None:
                raise NoSmallDisk(f"there is no {tool} here")
        mount = f'mount -t tmpfs -o size={megabytes}m none "$1" && echo mounted && exec cat'
        self._holder = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"mounted\n":
            _, said = self._holder.communicate()
            raise NoSmallDisk(f"no tmpfs can be mounted in a namespace of its own: {said.decode().strip()}")

    @property
    def path(self) -> Path:
        """The path of the directory for processes outside of the namespace."""
        return Path(f"/proc/{self._holder.pid}/root{self._path}")

    @property
    def free_bytes(self) -> int:
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def fill_up(self) -> None:
        """Write a file that takes all free space."""
        with (self.path / "ballast").open("wb", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError:
                    continue

    def make_room(self) -> None:
        """Remove the file of `fill_up`."""
        (self.path / "ballast").unlink()

    def inside(self, *command: str) -> list[str]:
        """A command line that runs ``command`` in the namespace in which the file system is mounted."""
        return [
            *("nsenter", "--target", str(self._holder.pid), "--user", "--mount", "--preserve-credentials", "--"),
            *("sh", "-c", 'cd "$0" && exec "$@"', str(REPOSITORY), *command),
        ]

    def close(self) -> None:
        """Unmount the file system with all of its files."""
        self._holder.communicate()


class BrokerOnSmallDisk(BrokerProcess):
    """A broker whose data directory is on a `SmallDisk`."""

    def __init__(self, directory: Path, *, megabytes: int, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, settings=settings, port=port_below_client_ports())
        self.disk = SmallDisk(self.data_directory, megabytes=megabytes)

    def command(self) -> list[str]:
        return self.disk.inside(*super().command())

    def close(self) -> None:
        super().close()
        self.disk.close()
