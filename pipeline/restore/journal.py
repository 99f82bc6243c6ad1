"""The journal of a restore: a file in the data directory that says how far an unfinished restore has come.

Brokers take no notice of it. A restore that was killed finds here how far it had come, and goes on with the same
plan, also when the archive has grown since.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from pipeline.errors import PipelineError
from pipeline.restore.plan import Plan
from pipeline.restore.staging import StagedLog
from storage.files import FileSystem
from storage.topic_partition import TopicPartition, parse_dir_name

NAME: Final = ".ottla-restore.json"
_FORMAT: Final = 1


class Step(IntEnum):
    """The step of a restore that is under way."""

    STAGING = 0
    """Logs are made, set aside."""
    CREATING = 1
    """The topics come into being, empty."""
    PLACING = 2
    """The logs take the places of the empty ones."""
    COMMITTING = 3
    """Group offsets are committed."""


@dataclass(slots=True, kw_only=True)
class Journal:
    """One restore."""

    restore_id: str
    """32 hex digits, for the names of directories."""
    wishes: str
    """What was asked for, as text: only who asks for the same may go on."""
    plan: Plan
    is_new: bool
    """Whether there was nothing in the directory before."""
    step: Step = Step.STAGING
    staged: dict[TopicPartition, StagedLog] = field(default_factory=dict)

    def save(self, files: FileSystem, directory: str) -> None:
        """Write the journal; on disk when this returns. Raises DiskFull, LogDirFailed."""
        told = {
            "format": _FORMAT,
            "restoreId": self.restore_id,
            "wishes": self.wishes,
            "step": self.step.name.lower(),
            "plan": self.plan.to_json(),
            "isNew": self.is_new,
            "staged": {place.dir_name: staged for place, staged in self.staged.items()},
        }
        files.replace_atomically(f"{directory}/{NAME}", json.dumps(told).encode(), fsync=True)

    def remove(self, files: FileSystem, directory: str) -> None:
        """Remove the journal: the restore is finished."""
        files.remove(f"{directory}/{NAME}")
        files.fsync_directory(directory)


def read_journal(files: FileSystem, directory: str) -> Journal | None:
    """The restore that was not finished in a directory; None if there is none. Raises PipelineError."""
    path = f"{directory}/{NAME}"
    try:
        content = files.read_file(path)
    except FileNotFoundError:
        return None
    try:
        told: Mapping[str, Any] = json.loads(content)
        if told["format"] != _FORMAT:
            raise PipelineError(f"{path} is of format {told['format']}; this version goes on with {_FORMAT}")
        return Journal(
            restore_id=told["restoreId"],
            wishes=told["wishes"],
            plan=Plan.from_json(told["plan"]),
            is_new=told["isNew"],
            step=Step[told["step"].upper()],
            staged={
                parse_dir_name(name).topic_partition: StagedLog(*staged) for name, staged in told["staged"].items()
            },
        )
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{path} is not the beginning of a restore: {error!r}") from error
