"""The image's files say what the code does: there need not be a container engine to see that."""

import json
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from broker.tools.health import PATIENCE_S
from config.container import DEFAULTS, MOUNTED_FILE, UNDER_A_TEST, load_container_settings
from config.listen_address import CONTROL_LISTENER, parse_control_listener
from ottla.__main__ import _COMMANDS

REPOSITORY = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker/compose.yaml").read_text())


def instructions() -> list[tuple[str, str]]:
    """Every instruction of the Dockerfile with its arguments, those of the last stage only."""
    text = (REPOSITORY / "docker/Dockerfile").read_text().replace("\\\n", " ")
    found = [tuple(line.split(None, 1)) for line in text.splitlines() if line and not line.startswith("#")]
    last_from = max(index for index, (name, _) in enumerate(found) if name == "FROM")
    return [(name, arguments.strip()) for name, arguments in found[last_from:]]


def arguments_of(instruction: str) -> str:
    """The arguments of an instruction that stands there once."""
    (arguments,) = [arguments for name, arguments in instructions() if name == instruction]
    return arguments


def test_the_image_starts_the_broker_with_the_settings_of_a_container() -> None:
    program, command, option = json.loads(arguments_of("ENTRYPOINT"))

    assert (program, option) == ("ottla", "--container")
    assert command in _COMMANDS


def test_the_broker_is_not_root_and_its_directories_are_there() -> None:
    user = arguments_of("USER")
    made = next(arguments for name, arguments in instructions() if name == "RUN")

    assert user.isdecimal(), "a platform that refuses root can't tell from a name"
    assert user != "0"
    assert f"--uid {user}" in made
    assert DEFAULTS["log.dirs"] in shlex.split(made)
    assert MOUNTED_FILE.rpartition("/")[0] in shlex.split(made)


def test_data_stands_in_the_volume() -> None:
    assert arguments_of("VOLUME") == DEFAULTS["log.dirs"]


def test_the_ports_of_clients_and_of_prometheus_are_exposed() -> None:
    settings = load_container_settings(None, [], {}, mounted_file="/nowhere").settings
    (listener,) = settings.listeners
    metrics = settings.ottla_prometheus_listener

    assert metrics is not None
    assert metrics.host == "", "Prometheus comes from another container"
    assert arguments_of("EXPOSE").split() == [str(listener.port), str(metrics.port)]


def test_the_health_check_asks_with_the_settings_of_the_broker() -> None:
    options, _, command = arguments_of("HEALTHCHECK").partition(" CMD ")

    assert json.loads(command) == ["ottla", "health", "--container"]
    timeout = re.search(r"--timeout=(\d+)s", options)
    assert timeout is not None
    assert int(timeout[1]) > PATIENCE_S, "it must have time to say that nobody answered"


def test_the_page_about_tests_publishes_the_ports_of_a_broker_for_tests() -> None:
    page = (REPOSITORY / "docs/testing.md").read_text()
    [line] = [line for line in page.splitlines() if line.startswith("docker run ") and "--publish" in line]
    published = re.findall(r"--publish 127\.0\.0\.1:(\d+):(\d+)", line)
    (listener,) = load_container_settings(None, [], {}, mounted_file="/nowhere").settings.listeners
    control = parse_control_listener(UNDER_A_TEST[CONTROL_LISTENER])

    assert line.endswith(" ottla --test")
    assert control is not None
    assert published == [(str(port), str(port)) for port in (listener.port, control.port)]


def test_all_that_the_wheel_is_built_from_reaches_the_build() -> None:
    lines = (REPOSITORY / "docker/Dockerfile.dockerignore").read_text().splitlines()
    let_in = [line[1:] for line in lines if line.startswith("!")]
    project = (REPOSITORY / "pyproject.toml").read_text()
    included = re.search(r"force-include\]\n(.*?)\n\n", project, re.DOTALL)
    shared = re.search(r"shared-data\]\n(.*?)\n\n", project, re.DOTALL)
    assert included is not None
    assert shared is not None
    needed = re.findall(r'^"?([\w./]+)"? = ', included[1] + "\n" + shared[1], re.MULTILINE)
    needed += [
        "compiled",
        "ottla",
        "pyspark_ottla",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "requirements/runtime.txt",
    ]

    assert len(needed) >= 10
    for path in needed:
        assert any(fnmatch(path, one) or path.startswith(f"{one}/") for one in let_in), f"{path} does not get in"


def test_the_compose_file_tells_the_broker_nothing_that_it_does_not_understand(tmp_path: Path) -> None:
    broker = COMPOSE["services"]["broker"]
    environment = {name: str(value) for name, value in broker["environment"].items()}

    settings, notices = load_container_settings(None, [], environment, mounted_file=str(tmp_path / "none"))

    assert notices == []
    ports = {listener.port for listener in settings.listeners}
    published = {int(port.rpartition(":")[2]) for port in broker["ports"]}
    assert published <= ports
    assert [volume.partition(":")[2] for volume in broker["volumes"]] == list(settings.log_dirs)
    assert settings.ottla_topics_at_start


def test_every_service_keeps_its_data_and_listens_to_this_machine_only() -> None:
    for name, service in COMPOSE["services"].items():
        named = [volume.partition(":")[0] for volume in service["volumes"] if not volume.startswith("./")]
        assert named == [f"{name}-data"]
        assert named[0] in COMPOSE["volumes"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert all(volume.endswith(":ro") for volume in service["volumes"] if volume.startswith("./"))
