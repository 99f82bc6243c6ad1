"""`python -m broker`: the daemon."""

import gc
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a broker; return the exit code."""
    # What is imported and built until the broker is ready stays; looking for garbage in it costs 15 ms (bench: start).
    gc.disable()
    from broker.runtime.without_ssl import import_event_loops

    import_event_loops()
    from broker.server.command_line import run

    return run(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
