"""Surroundings that refuse what the broker would like to have: it serves, and stops in order."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka import KafkaConsumer, KafkaProducer

from dev.broker_process import BrokerDidNotStart, BrokerProcess, port_below_client_ports
from dev.repository import PACKAGES, REPOSITORY
from dev.waiting import until
from protocol.messages.topics import CreateTopicsRequest
from storage.batch.record_batch import Codec
from tests.support.batches import produced, record
from tests.support.metrics import http_get
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request, produce_request

MARKER = ".kafka_cleanshutdown"
INSTEAD_OF_THE_FILE_SYSTEM = """
import errno, os
def sendfile(*_):
    raise OSError(errno.{name}, os.strerror(errno.{name}))
os.sendfile = sendfile
"""
POOR_FILE_SYSTEM = """
import errno, fcntl, mmap, os
def refusing(name):
    def call(*_, **__):
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))
    return call
os.sendfile = refusing("EINVAL")
os.preadv = refusing("EOPNOTSUPP")
os.posix_fadvise = refusing("ENOSYS")
os.fdatasync = refusing("EINVAL")
os.statvfs = refusing("EIO")
os.fstatvfs = refusing("EIO")
fcntl.flock = refusing("ENOLCK")
mmap.mmap = type("mmap", (), {"__new__": refusing("ENOMEM")})
pread, pwrite = os.pread, os.pwrite
os.pread = lambda fd, size, position: pread(fd, size // 2 + 1, position)
os.pwrite = lambda fd, data, position: pwrite(fd, memoryview(data)[: len(data) // 2 + 1], position)
fsync = os.fsync
def fsync_files(fd):
    import stat
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        refusing("EINVAL")()
    fsync(fd)
os.fsync = fsync_files
"""
WITHOUT_MODULES = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
for name in {names}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
"""
OPTIONAL_MODULES = (
    *("_ssl", "_hashlib", "_ctypes", "_sqlite3", "_dbm", "_curses", "readline", "_uuid", "_bz2", "_lzma"),
    *("_posixshmem", "_multiprocessing", "resource", "uvloop"),
)
"""What Python lacks where a library of the system was not there when it was built; uvloop has no wheel everywhere."""
ALL_OPTIONAL_MODULES = (
    *OPTIONAL_MODULES,
    *("_gdbm", "_tkinter", "_decimal", "pyexpat", "nis", "_crypt", "spwd", "audioop", "_json", "_pickle", "_datetime"),
    *(
        "_zoneinfo",
        "_asyncio",
        "_heapq",
        "_bisect",
        "_queue",
        "_elementtree",
        "unicodedata",
        "grp",
        "syslog",
        "termios",
    ),
)
"""Also what few builds lack, and what is the same in Python where it is not there in C."""
ODD = CreateTopicsRequest.Topic(name="odd", num_partitions=1, replication_factor=1, assignments=[], configs=[])
NEEDED_MODULES = ("_socket", "select", "fcntl", "mmap", "zlib", "crc32c")
WITHOUT_SOCKET_OPTIONS = """
import socket
class Sandboxed(socket.socket):
    def setsockopt(self, level, option, *value):
        if option != socket.SO_REUSEADDR:  # without it, a port that another test has just used cannot be opened
            raise OSError(92, "Protocol not available")
        super().setsockopt(level, option, *value)
    def getsockopt(self, *_):
        raise OSError(92, "Protocol not available")
socket.socket = Sandboxed
"""
FEW_THREADS = """
import _thread
start_new_thread = _thread.start_new_thread
left = {count}
def start_while_there_are_some(*arguments, **more):
    global left
    if not left:
        raise RuntimeError("can't start new thread")
    left -= 1
    return start_new_thread(*arguments, **more)
_thread.start_new_thread = start_while_there_are_some
"""


class OddBroker(BrokerProcess):
    """A broker whose process begins as the test says."""

    def __init__(self, directory: Path, site: str = "", **options: object) -> None:
        super().__init__(directory, port=port_below_client_ports())
        self._options = options
        self._environment = dict(os.environ)
        if site:
            (directory / "sitecustomize.py").write_text(site)
            self._environment["PYTHONPATH"] = f"{directory}{os.pathsep}{PACKAGES}{os.pathsep}{REPOSITORY}"

    def launch(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=PACKAGES,
                env=self._environment,
                **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": log, **self._options},  # type: ignore[call-overload]
            )


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[Callable[..., OddBroker]]:
    made: list[OddBroker] = []

    def make(**options: object) -> OddBroker:
        made.append(OddBroker(tmp_path, **options))
        return made[-1]

    yield make
    for broker in made:
        broker.close()


def there_and_back(bootstrap: str, *values: bytes) -> list[bytes]:
    """Produce records, and read them again."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for value in values:
        producer.send("odd", value)
    producer.flush()
    producer.close()
    return read_all("odd", bootstrap, len(values))


def read_all(topic: str, bootstrap: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    read = [next(consumer).value for _ in range(count)]
    consumer.close()
    return read


@pytest.mark.parametrize("name", ["EINVAL", "ENOSYS", "EOPNOTSUPP", "EOVERFLOW"])
def test_a_file_system_without_sendfile_serves_its_records(odd: Callable[..., OddBroker], name: str) -> None:
    broker = odd(site=INSTEAD_OF_THE_FILE_SYSTEM.format(name=name)).start()
    values = [b"small", os.urandom(700_000), b"last"]
    assert there_and_back(broker.bootstrap, *values) == values
    assert broker.log_text().count("cannot be sent by sendfile") == 1, "said once for a directory"
    broker.stop()


def test_a_file_system_that_has_next_to_nothing_keeps_records_over_restarts(odd: Callable[..., OddBroker]) -> None:
    broker = odd(site=POOR_FILE_SYSTEM)
    broker.settings |= {"log.flush.interval.messages": "1", "log.segment.bytes": "1048576"}
    values = [os.urandom(100_000) for _ in range(30)]
    broker.start()
    assert there_and_back(broker.bootstrap, *values) == values
    broker.stop()
    broker.start()
    assert read_all("odd", broker.bootstrap, len(values)) == values
    broker.kill()
    broker.start()
    assert read_all("odd", broker.bootstrap, len(values)) == values
    broker.stop()
    assert (broker.data_directory / MARKER).exists()


@pytest.mark.parametrize(
    "names",
    [*((name,) for name in OPTIONAL_MODULES), ALL_OPTIONAL_MODULES],
    ids=[*OPTIONAL_MODULES, "all of them"],
)
def test_a_python_without_optional_modules_keeps_records_over_a_kill(
    odd: Callable[..., OddBroker], names: tuple[str, ...]
) -> None:
    sent = [produced([record(b"one")], codec=codec) for codec in Codec]
    broker = odd(site=WITHOUT_MODULES.format(names=names)).start()
    with RawClient(broker.bootstrap) as client:
        client.ask(CreateTopicsRequest(topics=[ODD], timeout_ms=30_000), 7)
        for batch in sent:
            answer = client.ask(produce_request("odd", batch), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        fetched = client.ask(fetch_request("odd"), 12).responses[0].partitions[0].records
    assert len(fetched) == sum(map(len, sent))
    assert http_get(broker.metrics_port, "/metrics").status == 200

    broker.kill()
    broker.start()

    with RawClient(broker.bootstrap) as client:
        assert client.ask(fetch_request("odd"), 12).responses[0].partitions[0].records == fetched
    broker.stop()
    assert "Traceback" not in broker.log_text()


@pytest.mark.parametrize("name", NEEDED_MODULES)
def test_a_python_without_a_module_that_is_needed_is_told_so_in_one_sentence(
    odd: Callable[..., OddBroker], name: str
) -> None:
    broker = odd(site=WITHOUT_MODULES.format(names=(name,)))
    with pytest.raises(BrokerDidNotStart, match="exit code 1"):
        broker.start()
    assert (
        broker.log_text().splitlines()[-1] == f"ottla: {sys.executable} cannot run a broker: No module named '{name}'"
    )
    assert "Traceback" not in broker.log_text()


def test_a_limit_of_file_sizes_begins_segments_and_ends_no_broker(odd: Callable[..., OddBroker]) -> None:
    limit = 12 << 20  # an index is made with 10 MiB
    broker = odd(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))).start()
    values = [os.urandom(900_000) for _ in range(30)]
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, retries=5, linger_ms=0)
    for value in values:
        producer.send("odd", value).get(60)
    producer.close()
    assert read_all("odd", broker.bootstrap, len(values)) == values
    assert "odd-0 goes on in a new segment: writing to" in broker.log_text()
    broker.stop()


@pytest.mark.parametrize("most", [5, 10, 20, 31])
def test_too_few_descriptors_for_a_start_are_one_sentence(odd: Callable[..., OddBroker], most: int) -> None:
    broker = odd(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
    broker.launch()
    broker.process.communicate(timeout=60)
    assert broker.process.returncode == 1
    assert broker.log_text().splitlines()[-1] == (
        f"ottla: up to {most} open files are allowed, expected at least 32 (ulimit -n)"
    )


def test_as_many_descriptors_as_are_needed_serve(odd: Callable[..., OddBroker]) -> None:
    broker = odd(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))).start()
    assert there_and_back(broker.bootstrap, b"one") == [b"one"]
    broker.stop()
    assert (broker.data_directory / MARKER).exists()


@pytest.mark.parametrize(("allowed", "left"), [(0, 0), (1, 0), (4, 3)])
def test_too_few_threads_for_a_start_are_one_sentence(odd: Callable[..., OddBroker], allowed: int, left: int) -> None:
    broker = odd(site=FEW_THREADS.format(count=allowed))
    with pytest.raises(BrokerDidNotStart, match="exit code 1"):
        broker.start()
    assert broker.log_text().splitlines()[-1] == (
        f"ottla: {left} threads can be started, expected at least 4 "
        "(ulimit -u, or the limit of processes of a container or service)"
    )
    assert "Traceback" not in broker.log_text()


@pytest.mark.parametrize("allowed", [5, 6])
def test_a_broker_to_which_threads_are_refused_later_stops_in_order(
    odd: Callable[..., OddBroker], allowed: int
) -> None:
    # One writes stacks, four are only tried; the next syncs the metadata log.
    broker = odd(site=FEW_THREADS.format(count=allowed))
    broker.settings["replica.high.watermark.checkpoint.interval.ms"] = "50"
    broker.launch()
    until(lambda: "thread cannot start, its work waits" in broker.log_text(), "the refusal")
    broker.stop()
    assert (broker.data_directory / MARKER).exists() == (allowed == 6), "it has started"


def test_a_sandbox_without_socket_options_serves(odd: Callable[..., OddBroker]) -> None:
    broker = odd(site=WITHOUT_SOCKET_OPTIONS).start()
    assert there_and_back(broker.bootstrap, b"one") == [b"one"]
    broker.stop()


def test_a_terminal_that_goes_away_stops_the_broker_in_order(odd: Callable[..., OddBroker]) -> None:
    broker = odd().start()
    broker.stop(signal.SIGHUP)
    assert (broker.data_directory / MARKER).exists()


def test_a_broker_below_nohup_stays(odd: Callable[..., OddBroker]) -> None:
    broker = odd(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)).start()
    broker.process.send_signal(signal.SIGHUP)
    assert there_and_back(broker.bootstrap, b"one") == [b"one"]
    broker.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_broker_whose_caller_has_blocked_signals_stops_in_order(
    odd: Callable[..., OddBroker], number: signal.Signals
) -> None:
    broker = odd(preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())).start()
    broker.process.send_signal(signal.SIGUSR1)
    assert there_and_back(broker.bootstrap, b"one") == [b"one"]
    broker.stop(number)
    assert (broker.data_directory / MARKER).exists()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def full_pipe() -> int:
    """The end of a pipe that takes nothing more, and whose reader does not read."""
    _, end = os.pipe()
    os.set_blocking(end, False)
    try:
        while True:
            os.write(end, bytes(65_536))
    except BlockingIOError:
        os.set_blocking(end, True)
    return end


def broken_pipe() -> int:
    reader, end = os.pipe()
    os.close(reader)
    return end


def full_device() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize("make_stdout", [full_device, full_pipe, broken_pipe])
def test_a_stdout_that_cannot_be_written_is_said_in_the_log(
    odd: Callable[..., OddBroker], make_stdout: Callable[[], int]
) -> None:
    stdout = make_stdout()
    broker = odd(stdout=stdout)
    broker.launch()
    os.close(stdout)
    until(lambda: "could not be written to stdout" in broker.log_text(), "the line about stdout")
    assert there_and_back(broker.bootstrap, b"one") == [b"one"]
    broker.process.send_signal(signal.SIGTERM)
    assert broker.process.wait(60) == 0


@pytest.mark.parametrize("make_stderr", [full_device, full_pipe, broken_pipe])
def test_a_log_that_cannot_be_written_holds_nobody(
    odd: Callable[..., OddBroker], make_stderr: Callable[[], int]
) -> None:
    stderr = make_stderr()
    broker = odd(stderr=stderr).start()
    os.close(stderr)
    broker.process.send_signal(signal.SIGQUIT)  # writes the stacks of all threads
    broker.process.send_signal(signal.SIGUSR1)  # writes latencies into the log
    with socket.create_connection(("127.0.0.1", broker.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")  # writes a line about the peer
        assert stranger.recv(1) == b""
    assert there_and_back(broker.bootstrap, b"one") == [b"one"]
    broker.stop()
    assert (broker.data_directory / MARKER).exists()


@pytest.mark.parametrize("make_stderr", [full_device, full_pipe, broken_pipe])
def test_a_start_that_is_refused_ends_also_where_nobody_hears_why(
    odd: Callable[..., OddBroker], make_stderr: Callable[[], int]
) -> None:
    stderr = make_stderr()
    broker = odd(stderr=stderr)
    broker.settings["log.segment.bytes"] = "many"
    broker.launch()
    os.close(stderr)
    broker.process.communicate(timeout=60)
    assert broker.process.returncode == 1


def test_descriptors_that_were_closed_are_given_to_no_data_file(odd: Callable[..., OddBroker]) -> None:
    broker = odd(preexec_fn=lambda: os.closerange(0, 3))
    broker.launch()
    until(lambda: is_open(broker.port), "the listener")
    assert there_and_back(broker.bootstrap, b"one") == [b"one"]
    standard = {os.readlink(f"/proc/{broker.process.pid}/fd/{number}") for number in range(3)}
    assert standard == {"/dev/null"}
    broker.stop()


def test_a_data_directory_may_have_a_name_that_is_no_utf_8(odd: Callable[..., OddBroker], tmp_path: Path) -> None:
    broker = odd()
    broker.settings["log.dirs"] = os.fsdecode(os.fsencode(tmp_path) + b"/donn\xe9es")
    broker.start()
    assert there_and_back(broker.bootstrap, b"one") == [b"one"]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker.node_id))
    assert admin.describe_configs([resource])[resource].result()["log.dirs"].value == f"{tmp_path}/donn\\udce9es"
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics") as page:
        assert "donn" in page.read().decode()
    broker.stop()
