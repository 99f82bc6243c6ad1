"""The directory from which an Apache Kafka controller takes over the metadata of a single node.

DIR/meta.properties                                  the controller's node id, the cluster's id, a new directory id
DIR/bootstrap.checkpoint                             the feature levels
DIR/controller.properties                            settings to start the controller with
DIR/__cluster_metadata-0/partition.metadata
DIR/__cluster_metadata-0/<end>-<epoch>.checkpoint    kraft.version 1, the controller as voter, all records of the image

There is no log: the controller's begins where the snapshot ends. DIR is written under another name beside its place,
and renamed once all of it is on disk.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import Record
from broker.metadata.record_versions import version_of
from broker.metadata.registration import FORMATTED_KRAFT_VERSION
from broker.raft.formatting import BOOTSTRAP
from broker.raft.quorum import Quorum, only_voter
from broker.raft.single_voter_log import METADATA_TOPIC_ID
from broker.raft.snapshots import READ_ONLY, encode_snapshot
from broker.runtime.clock import Ids
from broker.tools.handover_source import HandoverRefused, HandoverSource
from config.listeners import Listener
from config.properties import escaped_value
from protocol.records.cluster_metadata import RegisterControllerRecord
from storage.checkpoints import (
    META_PROPERTIES,
    PARTITION_METADATA,
    MetaProperties,
    write_meta_properties,
    write_topic_id,
)
from storage.files import FileSystem
from storage.log_dir import METADATA_DIR_NAME

CONTROLLER_PROPERTIES: Final = "controller.properties"
LISTENER: Final = "CONTROLLER"
"""The name of the controller's listener."""

_PARTIAL_SUFFIX: Final = ".handover-partial"


class NewController(NamedTuple):
    """The Apache Kafka controller that takes over."""

    node_id: int
    endpoint: Listener

    @property
    def address(self) -> str:
        """host:port, as ``controller.quorum.bootstrap.servers`` has it."""
        return str(self.endpoint).partition("://")[2]


def endpoint_in_metadata(source: HandoverSource) -> Listener | None:
    """The address that the metadata has for the controller of the node; None if it has none."""
    voters = [] if source.quorum.voters is None else source.quorum.voters.voters
    of_voter = [endpoint for voter in voters for endpoint in voter.endpoints]
    registration = source.image.cluster.controllers.get(source.node_id)
    for endpoint in of_voter or ([] if registration is None else registration.end_points):
        return Listener(name=LISTENER, host=endpoint.host, port=endpoint.port)
    return None


def check_controller(source: HandoverSource, controller: NewController) -> None:
    """Check that the id and the address of ``controller`` are free in the cluster. Raises HandoverRefused."""
    node_id, endpoint = controller
    if node_id < 0:
        raise HandoverRefused(f"the controller's id is {node_id}, expected 0 or more")
    if node_id == source.node_id:
        raise HandoverRefused(
            f"the controller's id is {node_id}, which is this broker's own node.id, expected another: a broker cannot "
            "fetch the metadata log from a controller of its own id"
        )
    if node_id in source.image.cluster.brokers:
        raise HandoverRefused(f"the controller's id is {node_id}, which broker {node_id} of the cluster has")
    if endpoint.port == 0:
        raise HandoverRefused(
            f"the controller's address is {controller.address}, expected a port from 1 to 65535: brokers must find it"
        )
    if endpoint.binds_every_interface:
        raise HandoverRefused(
            f"the controller's address is {controller.address}, expected a host that brokers can connect to"
        )
    for broker_id, broker in source.image.cluster.brokers.items():
        if any((one.host, one.port) == (endpoint.host, endpoint.port) for one in broker.end_points):
            raise HandoverRefused(
                f"the controller's address is {controller.address}, where clients find broker {broker_id}, expected "
                "another port"
            )


def check_place(files: FileSystem, path: str) -> None:
    """Check that nothing stands at ``path`` but, at most, an empty directory. Raises HandoverRefused, StorageError."""
    if not files.exists(path):
        return
    if not files.is_directory(path):
        raise HandoverRefused(f"{path} is no directory")
    entries = files.list_directory(path)
    if entries:
        raise HandoverRefused(
            f"{path} is not empty, it has {entries[0].name}: the hand-over is written into a new directory"
        )


def write_handover(
    files: FileSystem,
    path: str,
    source: HandoverSource,
    controller: NewController,
    *,
    settings: Mapping[str, str],
    ids: Ids,
    now_ms: int,
    date: str,
    check_source: Callable[[], None],
) -> None:
    """Write the directory ``path``, absolute and not there yet. After an error, or a kill, it is not there either.

    Args:
        files: the file system.
        path: see `check_place`.
        source: what the controller takes over.
        controller: see `check_controller`.
        settings: settings of the cluster that controllers need, for the controller's own settings.
        ids: makes the id of the directory.
        now_ms: time stamp of the records.
        date: for people who read `meta.properties`.
        check_source: raises what says that ``source`` has become void; called before the directory gets its name.

    Raises:
        StorageError: a file can't be written.
    """
    partial = path + _PARTIAL_SUFFIX
    files.remove_tree(partial)
    try:
        _write(files, partial, source, controller, ids=ids, now_ms=now_ms, date=date)
        text = controller_properties(path, controller, settings)
        files.replace_atomically(f"{partial}/{CONTROLLER_PROPERTIES}", text.encode("latin-1"), fsync=True)
        check_source()
        files.rename(partial, path)
        files.fsync_directory(path.rpartition("/")[0] or "/")
    finally:
        files.remove_tree(partial)


def controller_properties(path: str, controller: NewController, settings: Mapping[str, str]) -> str:
    """Settings for an Apache Kafka with the role of a controller and the data directory ``path``."""
    lines = {
        "process.roles": "controller",
        "node.id": str(controller.node_id),
        "controller.listener.names": LISTENER,
        "listeners": str(controller.endpoint),
        "listener.security.protocol.map": f"{LISTENER}:PLAINTEXT",
        "controller.quorum.bootstrap.servers": controller.address,
        "log.dirs": escaped_value(path),
        **{key: escaped_value(value) for key, value in settings.items()},
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def handed_over(image: MetadataImage) -> Iterator[Record]:
    """The records of an image that the new controller takes over: all but the registrations of earlier controllers.

    Apache Kafka would go on to show these controllers to clients, and to let them limit the levels of features.
    """
    return (record for record in image.records() if not isinstance(record, RegisterControllerRecord))


def _write(
    files: FileSystem,
    directory: str,
    source: HandoverSource,
    controller: NewController,
    *,
    ids: Ids,
    now_ms: int,
    date: str,
) -> None:
    directory_id = ids.uuid()
    level = source.image.features.metadata_version
    log_directory = f"{directory}/{METADATA_DIR_NAME}"
    files.make_directory(log_directory)
    snapshot = encode_snapshot(
        ((record, version_of(record, level)) for record in handed_over(source.image)),
        quorum=Quorum(
            kraft_version=FORMATTED_KRAFT_VERSION,
            voters=only_voter(controller.node_id, directory_id, controller.endpoint),
        ),
        epoch=source.end.epoch,
        last_contained_timestamp_ms=source.last_timestamp_ms,
        now_ms=now_ms,
    )
    files.replace_atomically(f"{log_directory}/{source.end.file_name}", snapshot, fsync=True, mode=READ_ONLY)
    write_topic_id(files, f"{log_directory}/{PARTITION_METADATA}", METADATA_TOPIC_ID)
    bootstrap = encode_snapshot(
        [(record, 0) for record in source.image.features.records()],
        quorum=Quorum(),
        epoch=0,
        last_contained_timestamp_ms=0,
        now_ms=now_ms,
    )
    files.replace_atomically(f"{directory}/{BOOTSTRAP}", bootstrap, fsync=True)
    properties = MetaProperties(cluster_id=source.cluster_id, node_id=controller.node_id, directory_id=directory_id)
    write_meta_properties(files, f"{directory}/{META_PROPERTIES}", properties, date)
    for written in (log_directory, directory):
        files.fsync_directory(written)
