"""The journal of a restore: a file in the data directory that says how far an unfinished restore has come.

Brokers ignore the file. A restore that was killed is continued from it with the same plan, also when the archive has
grown since.
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
    """The logs are built in directories of their own, which brokers ignore."""
    CREATING = 1
    """A broker creates the topics, empty."""
    PLACING = 2
    """The built logs replace the empty logs."""
    COMMITTING = 3
    """The groups' offsets are committed."""


@dataclass(slots=True, kw_only=True)
class Journal:
    """The journal of one restore."""

    restore_id: str
    """32 hex digits, from which the names of directories are made."""
    wishes: str
    """The options of the restore, as text: only a restore with the same options may continue it."""
    plan: Plan
    is_new: bool
    """Whether the data directory was empty before."""
    step: Step = Step.STAGING
    staged: dict[TopicPartition, StagedLog] = field(default_factory=dict)

    def save(self, files: FileSystem, directory: str) -> None:
        """Write the journal; on disk when this returns. Raises DiskFull, LogDirFailed."""
        entry = {
            "format": _FORMAT,
            "restoreId": self.restore_id,
            "wishes": self.wishes,
            "step": self.step.name.lower(),
            "plan": self.plan.to_json(),
            "isNew": self.is_new,
            "staged": {place.dir_name: staged for place, staged in self.staged.items()},
        }
        files.replace_atomically(f"{directory}/{NAME}", json.dumps(entry).encode(), fsync=True)

    def remove(self, files: FileSystem, directory: str) -> None:
        """Remove the journal: the restore is finished."""
        files.remove(f"{directory}/{NAME}")
        files.fsync_directory(directory)


def read_journal(files: FileSystem, directory: str) -> Journal | None:
    """The journal of an unfinished restore in a directory; None if there is none. Raises PipelineError."""
    path = f"{directory}/{NAME}"
    try:
        content = files.read_file(path)
    except FileNotFoundError:
        return None
    try:
        entry: Mapping[str, Any] = json.loads(content)
        if entry["format"] != _FORMAT:
            raise PipelineError(f"{path} is of format {entry['format']}; this version goes on with {_FORMAT}")
        return Journal(
            restore_id=entry["restoreId"],
            wishes=entry["wishes"],
            plan=Plan.from_json(entry["plan"]),
            is_new=entry["isNew"],
            step=Step[entry["step"].upper()],
            staged={
                parse_dir_name(name).topic_partition: StagedLog(*staged) for name, staged in entry["staged"].items()
            },
        )
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{path} is not the beginning of a restore: {error!r}") from error
