"""`python -m broker.logs.recovery_child` recovers the logs that the broker names (see `storage.recovery_order`)."""

from collections.abc import Iterator

from broker.runtime.child_process import Message, serve
from storage.files import FileSystem
from storage.recovery_order import RecoveryOrder, perform


def main() -> None:
    """Recover the ordered logs until there are no more orders."""
    files = FileSystem()

    def recover(message: Message) -> Iterator[Message]:
        return perform(files, RecoveryOrder.from_message(message))

    serve(recover)


if __name__ == "__main__":
    main()
