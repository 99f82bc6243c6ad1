"""Advisory locks on an open file: flock and a POSIX record lock, both of them where the system has both.

Apache Kafka takes a record lock, which does not exclude a second broker in our own process; flock does.
"""

import errno
import fcntl
from typing import Final

EXCLUSIVE: Final = fcntl.LOCK_EX
SHARED: Final = fcntl.LOCK_SH

HELD: Final = frozenset({errno.EAGAIN, errno.EACCES})
"""The errors of a lock that another process has; POSIX allows both."""

_NO_LOCKS: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EPERM})
"""The errors of one kind of lock where a file system or server has only the other, or a sandbox forbids it."""


def take_both_locks(fd: int, kind: int) -> None:
    """Take both locks, `EXCLUSIVE` or `SHARED`, without waiting.

    One of the two suffices where the file system, or a sandbox, has not the other. Raises an OSError of `HELD` where
    another process has one of them, and other errors where there is neither.
    """
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        fcntl.lockf(fd, kind | fcntl.LOCK_NB)
        return
    try:
        fcntl.lockf(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return
        if error.errno not in HELD:
            raise
        # NFS makes a record lock of the first one as well, and that stands in the way of the second.
        fcntl.flock(fd, fcntl.LOCK_UN)
        fcntl.lockf(fd, kind | fcntl.LOCK_NB)
