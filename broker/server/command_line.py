"""The command line: read the settings, run the broker, exit with a code."""

import argparse
import asyncio
import faulthandler
import gc
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from broker.request.line_limit import LineLimit
from broker.runtime.clock import LoopClock
from broker.runtime.cpu_scheduling import ask_for_short_turns
from broker.runtime.stderr import never_wait_for_stderr
from broker.server.broker_server import BrokerServer, CannotStart
from broker.server.signals import Signals
from broker.server.systemd import ServiceManager
from config.errors import SettingsError
from config.parse import LoadedSettings
from config.settings_options import add_release_version_option, add_settings_options, settings_of
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.metadata.image.records import Record

log = logging.getLogger("broker")

STOPPED = 0
FAILED = 1

STDOUT = 1
STANDARD_DESCRIPTORS = (0, STDOUT, 2)

MACOS_OPEN_FILES = 10_240
"""OPEN_MAX of macOS."""

OPEN_FILES_UNTOLD = 1_024
"""The usual limit of open files, where a sandbox does not tell the limit."""

FEWEST_OPEN_FILES = 32
"""With fewer the broker could hardly open what every start needs."""

FEWEST_THREADS = 4
"""Threads beside the first without which a broker could not start or stop: a flusher, and three of
`broker.runtime.services`. The work of further threads waits where the system refuses them."""

MOST_OPEN_FILES = 32_768
"""Files of segments that are open at a time, where the system allows so many. Indexes are mapped, and Linux lets a
process have 65,530 maps."""

HELP_COLUMNS = 100
"""A fixed width of the help text: asking the terminal imports all compression modules, at each start."""

YOUNG_OBJECTS = 20_000
"""The garbage collector's first threshold: how many new objects there are before it collects."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a broker until a signal stops it (SIGTERM, SIGINT, SIGHUP) or it can't go on; return the exit code."""
    keep_standard_descriptors()
    never_wait_for_stderr()
    signals = Signals()
    options = _parser().parse_args(arguments)
    log_to_stderr(options.log_level)
    try:
        loaded = settings_of(options)
        _refuse_what_is_for_tests(loaded)
        credentials = _credentials(options.add_scram, loaded)
    except SettingsError as error:
        return failed(error)
    for notice in loaded.notices:
        log.info("%s", notice)
    descriptors = raise_descriptor_limit()
    if descriptors < FEWEST_OPEN_FILES:
        return failed(f"up to {descriptors} open files are allowed, expected at least {FEWEST_OPEN_FILES} (ulimit -n)")
    threads = threads_that_start(FEWEST_THREADS)
    if threads < FEWEST_THREADS:
        return failed(
            f"{threads} threads can be started, expected at least {FEWEST_THREADS} "
            "(ulimit -u, or the limit of processes of a container or service)"
        )
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        most_open_files = min(descriptors // 2, MOST_OPEN_FILES)
        return runner.run(_serve(loaded, signals, credentials, most_open_files=most_open_files))


def _refuse_what_is_for_tests(loaded: LoadedSettings) -> None:
    """Raises `SettingsError`: nothing could move a clock of this broker, or make it begin anew."""
    for key in ("ottla.clock", "ottla.control.listener"):
        if loaded.settings.given.get(key, "") not in ("", "system"):
            raise SettingsError(f"{key} is for a broker that is under a test: start it with --test")


def _credentials(texts: Sequence[str], loaded: LoadedSettings) -> "Sequence[Record]":
    """The credentials of `--add-scram`. Raises `SettingsError`."""
    if not texts:
        return ()
    from broker.security.sasl.new_credential import read_credential

    if loaded.settings.is_member:
        raise SettingsError("--add-scram is for nodes with a controller of their own, and process.roles is broker")
    return [read_credential(text, os.urandom) for text in texts]


def keep_standard_descriptors() -> None:
    """Open what of stdin, stdout and stderr was closed when the process began, so that no data file gets the number."""
    for descriptor in STANDARD_DESCRIPTORS:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def raise_descriptor_limit() -> int:
    """Raise the limit of open files as far as this process may, and return it. Segments get half of the files,
    connections the rest. A Python without the module for it has the limit that it was started with."""
    try:
        import resource
    except ImportError:
        return os.sysconf("SC_OPEN_MAX")
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError as error:
        log.warning("taken as %d open files, since the system does not tell: %s", OPEN_FILES_UNTOLD, error)
        return OPEN_FILES_UNTOLD
    if soft == hard:
        log.info("up to %d open files", soft)
        return soft
    for wanted in (hard, MACOS_OPEN_FILES):
        if 0 <= wanted <= soft:
            continue
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            # macOS calls its hard limit unlimited, and then allows OPEN_MAX only.
            continue
        log.info("up to %d open files, raised from %d", wanted, soft)
        return wanted
    log.warning("up to %d open files: the limit cannot be raised to %d", soft, hard)
    return soft


def threads_that_start(wanted: int) -> int:
    """How many threads the system starts, of so many that are wanted. They have ended when this returns."""
    may_end = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(wanted):
            thread = threading.Thread(target=may_end.wait, daemon=True)
            thread.start()
            started.append(thread)
    except (RuntimeError, MemoryError) as error:
        log.error("thread %d could not be started: %s", len(started) + 1, error)
    may_end.set()
    for thread in started:
        thread.join()
    return len(started)


async def _serve(
    loaded: LoadedSettings, signals: Signals, credentials: "Sequence[Record]", *, most_open_files: int
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals.stop_by(loop, stop.set)
    for handler in logging.getLogger().handlers:
        handler.addFilter(LineLimit(LoopClock(loop, time.time)))
    try:
        with closing(ServiceManager(os.environ, LoopClock(loop, time.time))) as manager:
            return await _serve_until(stop, loaded, manager, credentials, most_open_files=most_open_files)
    finally:
        signals.has_stopped()


async def _serve_until(
    stop: asyncio.Event,
    loaded: LoadedSettings,
    manager: ServiceManager,
    credentials: "Sequence[Record]",
    *,
    most_open_files: int,
) -> int:
    if manager.watchdog_ms is not None:
        # On the watchdog's SIGABRT the process writes where the loop was.
        faulthandler.enable()
    try:
        daemon = BrokerServer(loaded.settings, most_open_files=most_open_files, first_records=credentials)
        # `kill -USR1` logs how long requests take.
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, daemon.socket_server.latencies.log)
        manager.starting(lambda: daemon.progress)
        if not await _started(daemon, stop):
            return STOPPED
    except CannotStart as error:
        return failed(error)
    announce(f"ready {daemon.description}\n")
    manager.ready(daemon.description)
    log.debug("short turns for %d threads", ask_for_short_turns())
    # Everything allocated so far lives until the end: it need not be looked through again and again. What a request
    # allocates is gone with it and leaves no cycles, so looking every 700 allocations, as Python does, finds nothing.
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()
    await daemon.wait(stop)
    manager.stopping()
    await daemon.stop()
    if daemon.failure is not None:
        if not isinstance(daemon.failure, StorageError):
            log.critical("the broker stopped", exc_info=daemon.failure)
        return failed(daemon.failure)
    return STOPPED


def announce(line: str) -> None:
    """Write ``line`` to stdout. The broker serves also where stdout is full, or a pipe that no process reads."""
    try:
        # A pipe that is full would hold the broker until its reader comes.
        if not select.select((), (STDOUT,), (), 0)[1]:
            raise BlockingIOError("it takes nothing at present")
        os.write(STDOUT, line.encode("utf-8", "backslashreplace"))
    except (OSError, ValueError) as error:
        log.warning("the line %r could not be written to stdout: %s", line.strip(), error)


async def _started(daemon: BrokerServer, stop: asyncio.Event) -> bool:
    """Start the broker; False if a signal came first."""
    starting = asyncio.ensure_future(daemon.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
        await daemon.stop()
        return False
    starting.result()
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla",
        description="A broker that speaks Kafka's protocol.",
        epilog="Other commands: ottla health, features, dump, verify, cluster, cert, pipeline, each with --help; "
        "ottla --test: a broker for tests.",
        formatter_class=partial(argparse.HelpFormatter, width=HELP_COLUMNS),
    )
    add_settings_options(parser)
    add_release_version_option(parser)
    parser.add_argument(
        "--add-scram",
        metavar="CREDENTIAL",
        action="append",
        default=[],
        help="a user of a new data directory, as kafka-storage takes it: SCRAM-SHA-256=[name=alice,password=...]",
    )
    parser.add_argument(
        "--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="what goes to stderr"
    )
    return parser


def log_to_stderr(level: str) -> None:
    formatter = OneLine("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler])


class OneLine(logging.Formatter):
    """Writes a message as one line: a name that a client chose can't begin another line, or move a cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        if not record.message.isprintable():
            record.message = "".join(
                character if character.isprintable() else ascii(character)[1:-1] for character in record.message
            )
        return super().formatMessage(record)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # no wheel for this platform: asyncio's own loop does the same, slower
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def failed(error: BaseException | str) -> int:
    sys.stderr.write(f"ottla: {error}\n")
    return FAILED
