"""Child processes for tests: `python -m tests.support.children <broker's process id>` carries out orders from its
stdin."""

import os
import signal
from collections.abc import Iterator

from broker.runtime.child_process import Message, serve


def perform(order: Message) -> Iterator[Message]:
    """`{"say": [...]}` answers each word; `{"die": true}` ends in the middle; `{"stay": true}` never answers."""
    for word in order.get("say", ()):
        yield {"said": word}
    if "first_dirty_offset" in order:  # a log to clean
        yield {"failure": "DiskFull", "text": "writing to 00000000000000000000.log.cleaned: No space left on device"}
    elif "directory" in order:  # a log to recover
        yield {"bytes_read": 1}
        yield {"failure": "LogDirFailed", "text": "reading t-0: Input/output error"}
    if order.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    if order.get("stay"):
        signal.pause()


if __name__ == "__main__":
    serve(perform)
