"""`ottla cluster handover`: gives the metadata of a stopped single node to an Apache Kafka controller."""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from broker.runtime.clock import SystemIds
from broker.runtime.counted import counted
from broker.tools.handover_directory import (
    CONTROLLER_PROPERTIES,
    LISTENER,
    NewController,
    check_controller,
    check_place,
    endpoint_in_metadata,
    write_handover,
)
from broker.tools.handover_source import HandoverRefused, HandoverSource, find_metadata_directory, read_source
from config.broker_settings import BrokerSettings
from config.errors import InvalidConfig, SettingsError
from config.listeners import Listener, parse_listeners
from config.settings_options import settings_of
from storage.errors import StorageError
from storage.files import FileSystem
from storage.log_dir import lock_for_reading

WRITTEN: Final = 0
REFUSED: Final = 1

DEFAULT_CONTROLLER_ID: Final = 200

_CONTROLLER_SETTINGS: Final = (
    "num.partitions",
    "default.replication.factor",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "delete.topic.enable",
    "auto.leader.rebalance.enable",
    "leader.imbalance.check.interval.seconds",
    "broker.session.timeout.ms",
)
"""Settings that the controller applies, not the broker: a cluster goes on with the values that the single node had."""


def add_handover_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to ``parser``, which has those of the settings already."""
    parser.add_argument("directory", metavar="DIR", help="the directory to write; it must not be there, or be empty")
    parser.add_argument(
        "--data", metavar="DIR", action="append", default=[],
        help="a data directory of the node; may be repeated. Without it they are log.dirs and metadata.log.dir of the "
        "settings",
    )  # fmt: skip
    parser.add_argument(
        "--controller-id", metavar="ID", type=int, default=DEFAULT_CONTROLLER_ID,
        help="node.id of the Apache Kafka controller (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--controller-endpoint", metavar="HOST:PORT",
        help="where the controller listens, and brokers find it (default: the address that the metadata has for the "
        "node's own controller)",
    )  # fmt: skip


def run_handover(options: argparse.Namespace) -> int:
    """Write the directory and print the next steps. The exit code: 0, or 1 with the reason on stderr."""
    files = FileSystem()
    try:
        settings = None if options.data else settings_of(options).settings
        steps = _hand_over(files, options, settings)
    except FileNotFoundError as error:
        return _refused(f"there is no {error.filename}")
    except (SettingsError, StorageError, HandoverRefused) as error:
        return _refused(str(error))
    print("\n".join(steps))
    return WRITTEN


def _hand_over(files: FileSystem, options: argparse.Namespace, settings: BrokerSettings | None) -> list[str]:
    target = files.absolute(options.directory)
    directories = _directories(files, options.data, settings)
    for directory in directories:
        if not files.is_directory(directory):
            raise HandoverRefused(f"{directory} is no directory")
    check_place(files, target)
    # While these locks are held, no broker can open the directories.
    locks = _lock(files, directories)
    metadata_directory = (
        find_metadata_directory(files, directories) if settings is None else files.absolute(settings.metadata_directory)
    )
    source = read_source(files, directories, metadata_directory)
    controller = NewController(options.controller_id, _endpoint(options.controller_endpoint, source))
    check_controller(source, controller)
    write_handover(
        files,
        target,
        source,
        controller,
        settings={} if settings is None else _of_controllers(settings),
        ids=SystemIds(os.urandom),
        now_ms=int(time.time() * 1000),
        date=datetime.now(UTC).strftime("%a %b %d %H:%M:%S UTC %Y"),
        # Without a lock file, a broker could have opened a directory meanwhile.
        check_source=lambda: locks.extend(_lock(files, directories)),
    )
    return list(_next_steps(target, source, controller, settings))


def _directories(files: FileSystem, given: Sequence[str], settings: BrokerSettings | None) -> list[str]:
    paths = given if settings is None else (*settings.log_dirs, settings.metadata_directory)
    return list(dict.fromkeys(files.absolute(path) for path in paths))


def _lock(files: FileSystem, directories: Sequence[str]) -> list[object]:
    """Raises DirectoryLocked where a broker works in a directory."""
    return [lock_for_reading(files, directory) for directory in directories]


def _endpoint(given: str | None, source: HandoverSource) -> Listener:
    if given is None:
        endpoint = endpoint_in_metadata(source)
        if endpoint is None:
            raise HandoverRefused("the metadata has no address for a controller: --controller-endpoint names it")
        return endpoint
    try:
        (endpoint,) = parse_listeners("--controller-endpoint", [f"{LISTENER}://{given}"], {LISTENER: "PLAINTEXT"})
    except InvalidConfig:
        raise HandoverRefused(
            f"--controller-endpoint is '{given}', expected host:port, such as controller.example:9093"
        ) from None
    return endpoint


def _of_controllers(settings: BrokerSettings) -> dict[str, str]:
    """The settings that the controller needs, where they are not Kafka's defaults."""
    values = dict(settings)
    found = {key: values[key.replace(".", "_")] for key in _CONTROLLER_SETTINGS}
    return {key: str(value).lower() for key, value in found.items() if value != BrokerSettings.default_of(key)}


def _next_steps(
    target: str, source: HandoverSource, controller: NewController, settings: BrokerSettings | None
) -> Iterator[str]:
    image = source.image
    yield (
        f"{target} has the metadata up to offset {source.end.end_offset} of cluster {source.cluster_id}: "
        f"{counted(len(image.topics.by_name), 'topic')}, metadata.version {image.features.metadata_version}"
    )
    yield ""
    yield f"1. Start the Apache Kafka controller, node {controller.node_id}, as the user that owns this directory:"
    yield f"     kafka-server-start.sh {target}/{CONTROLLER_PROPERTIES}"
    yield f"     kafka-metadata-quorum.sh --bootstrap-controller {controller.address} describe --status"
    yield f"2. Start Ottla as a broker of it, with the same data, node.id={source.node_id}, and these settings:"
    yield "     process.roles=broker"
    yield f"     controller.quorum.bootstrap.servers={controller.address}"
    if settings is not None and settings.controller_listeners:
        names = ", ".join(listener.name for listener in settings.controller_listeners)
        yield f"   Take the listener {names} out of `listeners`: a broker opens none for controllers."
    others = [f"{broker_id}" for broker_id in sorted(image.cluster.brokers) if broker_id != source.node_id]
    if others and controller.endpoint == endpoint_in_metadata(source):
        yield f"   Brokers {', '.join(others)} find the controller where this node's own was: leave them running."
    elif others:
        yield f"   Brokers {', '.join(others)}: the same controller.quorum.bootstrap.servers, and a restart."
    yield (
        "From then on the controller decides. Do not start Ottla with process.roles=broker,controller on this data "
        f"again. As long as step 2 is not done, removing {target} undoes the hand-over."
    )


def _refused(sentence: str) -> int:
    sys.stderr.write(f"ottla cluster handover: {sentence}\n")
    return REFUSED
