"""Builds the wheel and installs it as people do: by pip beside packages that have our packages' names, by uv, by pipx.

`make dist` runs it; it needs the package index.
"""

import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

from kafka import KafkaProducer

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY))

from dev.spark_home import linked_home  # noqa: E402
from pipeline.requirements import Missing, require_libraries, require_spark  # noqa: E402

NAMES = {"ottla", "pyspark_ottla"}
"""What a wheel puts on other people's import path."""

THEIRS = ("broker", "config", "pipeline", "protocol", "storage")
"""Packages of other people that have the names of our packages, as most have a `config`."""

RECORD_BYTES = 1_000_000
RECORDS = 40
"""Together more than is recovered without a process beside the broker."""


def run(*command: object, **options: object) -> str:
    """Run a command to its end and return what it printed."""
    done = subprocess.run(  # type: ignore[call-overload]
        [str(word) for word in command], check=True, text=True, stdout=subprocess.PIPE, timeout=300, **options
    )
    return str(done.stdout)


def main() -> None:
    """Raise unless the wheel holds what it should, and works however it was installed."""
    wheel = build()
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.startswith("ottla-")} == NAMES, tops
    is_compiled = any(name.startswith("ottla/broker/network/connection.") and name.endswith(".so") for name in names)
    assert is_compiled != wheel.name.endswith("-py3-none-any.whl"), names
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        for install in (by_pip_beside_their_packages, by_uv, by_pipx):
            place = home / install.__name__
            place.mkdir()
            install(wheel, place)
            sys.stdout.write(f"{wheel.name}: {install.__name__.replace('_', ' ')}\n")


def build() -> Path:
    """The wheel of this tree."""
    dist = REPOSITORY / "dist"
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", dist, REPOSITORY)
    return max(dist.glob("ottla-*.whl"), key=lambda path: path.stat().st_mtime)


# Ways to install it


def by_pip_beside_their_packages(wheel: Path, home: Path) -> None:
    """With the locked dependencies, in an environment where all the plain names are taken."""
    venv.create(home / "env", with_pip=True)
    python = home / "env/bin/python"
    pip = (python, "-m", "pip", "install", "--quiet")
    run(*pip, "--require-hashes", "-r", REPOSITORY / "requirements/runtime.txt")
    run(*pip, "--no-deps", *(their_wheel(name, home) for name in THEIRS))
    run(*pip, "--no-deps", wheel)
    assert run(python, "-m", "pip", "check") == "No broken requirements found.\n"

    # Theirs are still theirs, and nothing of ours has a plain name.
    ask = f"import {', '.join(THEIRS)}; print(*({', '.join(f'{name}.WHOSE' for name in THEIRS)},))"
    assert run(python, "-c", ask, cwd=home).split() == ["theirs"] * len(THEIRS)
    assert (home / "env/share/ottla/ottla.service").is_file()

    # The worst case: theirs also stand in the working directory, and in front of everything on the import path.
    for name in THEIRS:
        (home / name).mkdir()
        (home / name / "__init__.py").write_text("raise ImportError('this is not the broker')\n")
    use(home / "env/bin/ottla", home, {"PYTHONPATH": str(home)})
    use((python, "-m", "ottla"), home, {"PYTHONPATH": str(home)})
    in_a_job_of_spark(python, home)
    in_a_test(python, home)


def in_a_test(python: Path, home: Path) -> None:
    """pytest has the fixture without being told, and its broker serves beside packages that have our names."""
    run(python, "-m", "pip", "install", "--quiet", "pytest")
    test = home / "tests" / "test_orders.py"
    test.parent.mkdir()
    test.write_text(
        "def test_orders(kafka):\n"
        "    kafka.produce('orders', ['1', '2'])\n"
        "    assert [record.value for record in kafka.records('orders')] == [b'1', b'2']\n"
    )
    assert "1 passed" in run(python, "-m", "pytest", test, cwd=test.parent, env={**os.environ, "PYTHONPATH": str(home)})


def by_uv(wheel: Path, home: Path) -> None:
    """`uv tool install ottla`."""
    venv.create(home / "uv", with_pip=True)
    run(home / "uv/bin/python", "-m", "pip", "install", "--quiet", "uv")
    places = {name: str(home / name) for name in ("UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "UV_CACHE_DIR")}
    run(
        *(home / "uv/bin/uv", "tool", "install", "--quiet", "--python", sys.executable, wheel),
        env={**os.environ, **places},
    )
    use(home / "UV_TOOL_BIN_DIR/ottla", home)
    done = subprocess.run(
        [home / "UV_TOOL_BIN_DIR/ottla", "pipeline", "archive"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done
    assert "pip install 'ottla[spark]'" in done.stderr, done.stderr


def by_pipx(wheel: Path, home: Path) -> None:
    """`pipx install ottla`."""
    venv.create(home / "pipx", with_pip=True)
    run(home / "pipx/bin/python", "-m", "pip", "install", "--quiet", "pipx")
    places = {name: str(home / name) for name in ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR", "PIPX_SHARED_LIBS")}
    run(
        *(home / "pipx/bin/pipx", "install", "--quiet", "--python", sys.executable, wheel),
        env={**os.environ, **places},
        stderr=subprocess.DEVNULL,
    )
    use(home / "PIPX_BIN_DIR/ottla", home)


def their_wheel(name: str, home: Path) -> Path:
    """A distribution of somebody else with one package of this name."""
    path = home / f"their_{name}-1.0-py3-none-any.whl"
    info = f"their_{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": 'WHOSE = "theirs"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: their-{name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: try_wheel\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
    return path


# What is done with it then


def use(program: Path | tuple[object, ...], home: Path, environment: Mapping[str, str] | None = None) -> None:
    """Produce, kill it, let processes beside it recover what was produced, stop it in order, look at the files."""
    words = program if isinstance(program, tuple) else (program,)
    data = Path(tempfile.mkdtemp(prefix="data-", dir=home))
    settings = ("-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", f"log.dirs={data}", "-o", "num.partitions=2")
    options = {"cwd": home, "env": {**os.environ, **(environment or {})}}

    with daemon((*words, "run", *settings), data, options) as (process, address):
        producer = KafkaProducer(bootstrap_servers=address)
        for number in range(RECORDS):
            producer.send("orders", bytes(RECORD_BYTES), partition=number % 2).get(timeout=30)
        producer.close()
        process.kill()
        process.wait(30)

    with daemon((*words, *settings), data, options) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    said = (data.parent / f"{data.name}.log").read_text()
    assert "recovering segments of orders-1" in said, said
    assert "not in a process beside" not in said, said
    assert "stopped cleanly" in said, said

    run(*words, "verify", data, **options)
    assert run(*words, "dump", data / "orders-0" / f"{0:020}.log", **options)


def in_a_job_of_spark(python: Path, home: Path) -> None:
    """`format("kafka_log")` in the job of a user who has a `config` of his own, on a cluster of one worker."""
    if (reason := why_no_spark()) is not None:
        sys.stderr.write(f"The wheel was not tried in Spark: {reason}.\n")
        return
    # Spark and Arrow, half a gigabyte, come from the environment of this script, behind everything of the wheel's own.
    ours = sysconfig.get_path("purelib")
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "of_this_script.pth").write_text(f"{ours}\n")
    spark = linked_home(home / "spark", Path(ours) / "pyspark")
    data = next(path for path in home.glob("data-*") if path.is_dir())
    job = REPOSITORY / "tests/pipeline/spark/user_job/job.py"
    said = run(
        *(spark / "bin/spark-submit", "--master", "local-cluster[1,1,1024]"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
        *(job, data, "orders"),
        cwd=job.parent,
        env={**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_HOME": str(spark)},
        stderr=subprocess.DEVNULL,
    )
    last = said.splitlines()[-1]
    assert (last.count(str(RECORDS)), last.count("theirs: ")) == (2, 2), said


def why_no_spark() -> str | None:
    """Why no job of Spark can run here, if none can."""
    try:
        require_libraries()
        require_spark()
    except Missing as reason:
        return str(reason)
    return None


@contextmanager
def daemon(
    command: tuple[object, ...], data: Path, options: Mapping[str, object]
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker that is ready, and its address; killed at the end, if it still runs."""
    words = [str(word) for word in command]
    with (data.parent / f"{data.name}.log").open("a") as log:
        process = subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=log, **options)  # type: ignore[call-overload]
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready listeners=PLAINTEXT://127.0.0.1:"), line
            yield process, line.split()[1].partition("//")[2]
        finally:
            process.kill()


if __name__ == "__main__":
    main()
