"""The programs that are not ours: found on the machine, installed below `.interop`, or missing for a reason."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dev.class_archive import with_archive
from dev.kafka_jars import KAFKA_VERSION, NoKafka, libraries
from dev.maven import NoJars, one_at_a_time
from dev.maven import fetch as fetch_jars
from dev.repository import REPOSITORY
from tests.support.archives import unpack

INSTALL = Path(__file__).resolve().parent / "install"
CACHE = REPOSITORY / ".interop"
INSTALL_TIMEOUT_S = 300.0
RUN_TIMEOUT_S = 60.0
ENDED = (0, 128 + signal.SIGTERM)


class Missing(Exception):
    """A program that can not be had here; the sentence says why, and what would bring it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a program left when it ended."""

    command: tuple[str, ...]
    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.strip()]

    @property
    def said(self) -> str:
        """Both streams, since programs disagree on where a refusal belongs."""
        return self.output + self.errors

    def done(self) -> Outcome:
        """The same, if the program says that it succeeded."""
        assert self.code == 0, f"exit code {self.code}, expected 0, from {self}"
        return self

    def refused(self) -> Outcome:
        """The same, if the program says that it failed."""
        assert self.code != 0, f"exit code 0, expected a refusal, from {self}"
        return self

    def __str__(self) -> str:
        return f"{' '.join(self.command[-12:])}\n--- stdout\n{self.output}\n--- stderr\n{self.errors}"


def run(
    command: Sequence[str],
    *,
    stdin: bytes = b"",
    timeout_s: float = RUN_TIMEOUT_S,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a program to its end. Raises AssertionError if it is not done within `timeout_s`."""
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, timeout=timeout_s, cwd=cwd, env=environment, check=False
        )
    except subprocess.TimeoutExpired as late:
        said = ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace")
        raise AssertionError(f"not done within {timeout_s} s: {' '.join(command[-12:])}\n{said}") from None
    return Outcome(
        command=tuple(command), code=done.returncode, output=done.stdout.decode(), errors=done.stderr.decode()
    )


class Running:
    """A program that goes on until it is ended, and what it has printed until now."""

    def __init__(self, command: Sequence[str]) -> None:
        with contextlib.ExitStack() as opened:
            self._printed, self._errors = (opened.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._printed, stderr=self._errors
            )
            self._files = opened.pop_all()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._files.close()

    @property
    def lines(self) -> list[str]:
        """The lines that are complete. Fails if the program has ended with an error."""
        self.check()
        return _content(self._printed).split("\n")[:-1]

    def check(self) -> None:
        """Fails if the program has ended with an error."""
        assert self._process.poll() in (None, *ENDED), f"exit code {self._process.poll()}: {_content(self._errors)}"

    def kill(self) -> list[str]:
        """Kill it. Returns the complete lines that it has printed."""
        self._process.kill()
        self._process.wait()
        return _content(self._printed).split("\n")[:-1]

    def end(self) -> None:
        """End it in order. Java says with its exit code that this was the reason.

        Not by SIGINT, as Ctrl-C would: where a shell starts these tests in the background, it has that ignored, in what
        they start, too.
        """
        self._process.terminate()
        code = self._process.wait(RUN_TIMEOUT_S)
        assert code in ENDED, f"exit code {code}: {_content(self._errors)}"


def _content(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace")


def kcat() -> str:
    """The path of kcat. A build machine that runs as root gets it from its distribution's packages."""
    if found := shutil.which("kcat") or shutil.which("kafkacat"):
        return found
    if os.environ.get("CI") and os.geteuid() == 0 and shutil.which("apt-get"):
        with one_at_a_time(CACHE):
            _install("kcat", ["apt-get", "update"])
            _install("kcat", ["apt-get", "install", "--yes", "--no-install-recommends", "kcat"])
        if found := shutil.which("kcat"):
            return found
    raise Missing("kcat is not on the path: on Debian and Ubuntu, `apt install kcat` brings it")


def prometheus() -> Path:
    """The directory that has `prometheus` and `promtool`. The distribution's package is unpacked, not installed: that
    would start a service."""
    if (found := shutil.which("prometheus")) and shutil.which("promtool"):
        return Path(found).parent
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise Missing("prometheus and promtool are not on the path, and there is no Debian package to take them from")

    def fetch(directory: Path) -> None:
        if os.environ.get("CI") and os.geteuid() == 0:
            _install("the list of packages", ["apt-get", "update"])
        _install("prometheus", ["apt-get", "download", "prometheus"], cwd=directory)
        (package,) = directory.glob("prometheus_*.deb")
        _install("prometheus", ["dpkg-deb", "--extract", package.name, "."], cwd=directory)
        package.unlink()

    return _installed("prometheus", [], fetch) / "usr" / "bin"


def kafka_libraries(version: str = KAFKA_VERSION) -> Path:
    """The directory with the jars of a version of Apache Kafka."""
    try:
        return libraries(version)
    except NoKafka as reason:
        raise Missing(str(reason)) from None


def kafka_streams_libraries() -> Path:
    """The directory with the jars of Kafka Streams: that of `OTTLA_TEST_STREAMS_LIBS`, or one that Maven fills."""
    if named := os.environ.get("OTTLA_TEST_STREAMS_LIBS"):
        return Path(named)
    directory = CACHE / f"kafka-streams-{KAFKA_VERSION}"
    if not directory.exists():
        try:
            fetch_jars(
                INSTALL / "kafka-streams.pom.xml", directory, f"-Dkafka.version={KAFKA_VERSION}",
                instead="OTTLA_TEST_STREAMS_LIBS",
            )  # fmt: skip
        except NoJars as reason:
            raise Missing(str(reason)) from None
    return directory


def java_source(source: Path, libraries: Path) -> list[str]:
    """How a program of one source file, with a class of its name, is started on the jars of a directory: append its
    arguments. It is compiled once. Raises AssertionError if the compiler refuses it."""
    if shutil.which("javac") is None:
        raise Missing("there is no 'javac' on the path: install a Java development kit of version 17 or newer")

    def compiled(directory: Path) -> None:
        release = ("--release", "17")
        run(["javac", *release, "-cp", f"{libraries}/*", "-d", str(directory), str(source)]).done()

    classes = _installed(f"{source.stem}-{libraries.name}", [source], compiled)
    # Kafka's own jars have an archive of classes.
    *words, jars = java() if libraries == kafka_libraries() else java(libraries)
    return [*words, f"{jars}:{classes}", source.stem]


def java(libraries: Path | None = None) -> list[str]:
    """How Kafka's command line tools are started: append a class and its arguments. By default on Kafka's jars."""
    if libraries is not None:
        return _java(libraries)
    jars = kafka_libraries()
    return _java(jars, with_archive("tools", str(jars), _archive_classes))


def _java(jars: Path | str, options: Sequence[str] = ()) -> list[str]:
    # For a program that lives for a second: no second compiler, one collector thread, no more memory than it needs.
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256M", "-Dlog4j2.level=ERROR")
    return ["java", *quick, *options, "-cp", f"{jars}/*"]


def _archive_classes(jars: str, options: Sequence[str]) -> None:
    """Run a tool that finds no broker: by then it has loaded nearly all that the tools need."""
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as impatient:
        impatient.write("default.api.timeout.ms=1000\nrequest.timeout.ms=500\n")
        impatient.flush()
        words = ("--bootstrap-server", "127.0.0.1:1", "--command-config", impatient.name, "--list")
        run([*_java(jars, options), "org.apache.kafka.tools.TopicCommand", *words]).refused()


def kafkajs() -> tuple[str, Path]:
    """The path of node and the directory that has kafkajs in its `node_modules`."""
    node = _on_the_path("node", "kafkajs needs Node.js")
    npm = _on_the_path("npm", "kafkajs is fetched with npm")
    sources = [INSTALL / "package.json", INSTALL / "package-lock.json"]

    def fetch(directory: Path) -> None:
        for source in sources:
            shutil.copy(source, directory)
        _install("kafkajs", [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=directory)

    return node, _installed("kafkajs", sources, fetch)


def franz_go() -> str:
    """The path of a client of franz-go, which is compiled once."""
    go = _on_the_path("go", "franz-go needs Go")
    sources = [INSTALL / "franz_go" / name for name in ("go.mod", "go.sum", "main.go")]

    def build(directory: Path) -> None:
        _install("franz-go", [go, "build", "-C", str(sources[0].parent), "-o", str(directory / "franz_go"), "."])

    return str(_installed("franz-go", sources, build) / "franz_go")


def maven_tests(project: Path) -> list[str]:
    """How the tests of a Maven project are run, whose dependencies are fetched once."""
    if shutil.which("javac") is None:
        raise Missing("there is no 'javac' on the path: install a Java development kit of version 17 or newer")
    mvn = _on_the_path("mvn", "the tests in Java are run by Maven")

    def fetch(directory: Path) -> None:
        _copy_of(project, directory)
        # Maven fetches what runs JUnit's tests when it first runs tests: here those with a tag that no test has.
        words = ["-B", "-q", "--strict-checksums", "-Dgroups=none", "-f", str(directory), "test"]
        _install("what the tests in Java need", [mvn, *words])

    directory = _installed(f"maven-{project.name}", _files_of(project), fetch)
    return [mvn, "-o", "-B", "-f", str(directory), "test"]


def go_tests(project: Path) -> list[str]:
    """How the tests of a Go module are run, which are compiled once."""
    go = _on_the_path("go", "the tests in Go are compiled")

    def build(directory: Path) -> None:
        words = ["test", "-C", str(project), "-c", "-o", str(directory / "tests"), "."]
        _install("what the tests in Go need", [go, *words])

    return [str(_installed(f"go-{project.name}", _files_of(project), build) / "tests"), "-test.v"]


def node_tests(project: Path) -> list[str]:
    """How the tests of a package for Node.js are run, whose dependencies are fetched once."""
    node = _on_the_path("node", "the tests in JavaScript need Node.js")
    npm = _on_the_path("npm", "what the tests in JavaScript need is fetched with npm")

    def fetch(directory: Path) -> None:
        _copy_of(project, directory)
        words = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        _install("what the tests in JavaScript need", [npm, *words], cwd=directory)

    directory = _installed(f"node-{project.name}", _files_of(project), fetch)
    return [node, "--test", "--test-reporter=tap", str(directory)]


def python_packages(requirements: Path) -> Path:
    """A directory to import from, with what a file of requirements locks. It is fetched once."""

    def fetch(directory: Path) -> None:
        options = ("--quiet", "--require-hashes", "--disable-pip-version-check", "--target", str(directory))
        command = [sys.executable, "-m", "pip", "install", *options, "--requirement", str(requirements)]
        _install(f"what {requirements.parent.name} needs", command)

    return _installed(requirements.parent.name, [requirements], fetch)


def _files_of(project: Path) -> list[Path]:
    """The files of a project but for what its tools have made."""
    made = {"node_modules", "target", "__pycache__"}
    return sorted(path for path in project.rglob("*") if path.is_file() and made.isdisjoint(path.parts))


def _copy_of(project: Path, directory: Path) -> None:
    for path in _files_of(project):
        copy = directory / path.relative_to(project)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def kafka_python_source() -> Path:
    """kafka-python's source distribution, unpacked, in the version that the tests are locked to, its hash compared."""
    requirement = _locked_requirement("kafka-python")
    service = INSTALL / "kafka_python_service.py"

    def fetch(directory: Path) -> None:
        requirements = directory / "requirements.txt"
        requirements.write_text(requirement)
        options = ("--no-binary", ":all:", "--no-deps", "--require-hashes", "--disable-pip-version-check")
        download = [sys.executable, "-m", "pip", "download", *options, "--dest", str(directory)]
        _install("kafka-python's source distribution", [*download, "--requirement", str(requirements)])
        (archive,) = directory.glob("*.tar.gz")
        unpack(archive, directory)
        source = next(directory.glob("kafka_python-*/")).rename(directory / "source")
        # The distribution has the tests, but not all that makes them a package.
        (source / "test" / "__init__.py").touch()
        shutil.copy(service, source / "test" / "service.py")

    return _installed("kafka-python", [REPOSITORY / "requirements" / "test.txt", service], fetch) / "source"


def _locked_requirement(name: str) -> str:
    lines = (REPOSITORY / "requirements" / "test.txt").read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith(f"{name}=="))
    after = next(number for number in range(first + 1, len(lines)) if not lines[number].startswith(" "))
    return "".join(lines[first:after])


def _on_the_path(name: str, reason: str) -> str:
    if found := shutil.which(name):
        return found
    raise Missing(f"{reason}, and `{name}` is not on the path")


def _installed(name: str, sources: Sequence[Path], fetch: Callable[[Path], None]) -> Path:
    """The directory that `fetch` filled for exactly these sources, now or in an earlier run."""
    fingerprint = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    directory = CACHE / f"{name}-{fingerprint}"
    with one_at_a_time(CACHE):
        if not directory.exists():
            partial = CACHE / f"{name}-{fingerprint}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            fetch(partial)
            partial.rename(directory)
    return directory


def _install(what: str, command: list[str], *, cwd: Path | None = None) -> None:
    try:
        done = run(command, timeout_s=INSTALL_TIMEOUT_S, cwd=cwd)
    except AssertionError:
        raise Missing(f"{what} did not come within {INSTALL_TIMEOUT_S:.0f} s") from None
    if done.code != 0:
        last = (done.said.strip().splitlines() or ["nothing"])[-1]
        raise Missing(f"{what} could not be fetched; `{Path(command[0]).name}` said: {last}")
