"""`python -m broker`: the daemon."""

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a broker; return the exit code. Raises SystemExit with a sentence: Python lacks a module that is needed."""
    # What is imported and built until the broker is ready stays; looking for garbage in it costs 15 ms (bench: start).
    gc.disable()
    try:
        from broker.runtime.without_ssl import import_event_loops

        import_event_loops()
        given = sys.argv[1:] if arguments is None else arguments
        if "--test" in given:
            from broker.control.command_line import run as run_for_tests

            return run_for_tests(given)
        from broker.server.command_line import run

        return run(given)
    except ImportError as error:
        raise SystemExit(f"ottla: {sys.executable} cannot run a broker: {error}") from None


if __name__ == "__main__":
    raise SystemExit(main())
