"""A node's metadata in a temporary directory: its disk thread runs on command."""

from collections import deque

from broker.controller.cluster_requests import ClusterRequests
from broker.controller.local_controller import LocalController
from broker.metadata.cache import MetadataCache
from broker.metadata.loader import MetadataLoader
from broker.metadata.registration import Registration
from broker.raft.formatting import format_directories, read_bootstrap
from broker.raft.opening import open_metadata_log
from broker.runtime.manual_clock import ManualClock
from broker.runtime.worker_thread import Flusher
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from config.release_versions import NEWEST
from storage.checkpoints import read_meta_properties
from storage.errors import StorageError
from storage.files import FileSystem
from tests.support.own_broker import OwnBroker

CLIENTS = Listener(name="PLAINTEXT", host="127.0.0.1", port=9092)
CONTROLLERS = Listener(name="CONTROLLER", host="127.0.0.1", port=9093)


class CountedIds:
    def __init__(self):
        self.count = 1_000  # lower numbers are no ids of directories

    def uuid(self):
        self.count += 1
        return self.count.to_bytes(16, "big")


class HeldWorker:
    """A worker thread whose jobs wait for `work`."""

    def __init__(self):
        self.jobs = deque()

    def submit(self, job, done, failed):
        self.jobs.append((job, done, failed))

    def work(self):
        while self.jobs:
            self.work_once()

    def work_once(self):
        job, done, failed = self.jobs.popleft()
        try:
            result = job()
        except StorageError as error:
            failed(error)
        else:
            done(result)


class MetadataNode:
    """One run of a node on a directory; `stop` it before the next one."""

    def __init__(self, directory, *, was_clean=False, files=None, registers=True, **settings):
        self.files = files or FileSystem()
        self.directory = str(directory)
        self.settings = BrokerSettings(log_dirs=(self.directory,), listeners=(CLIENTS,), **settings)
        self.ids = CountedIds()
        self.clock = ManualClock()
        self.worker = HeldWorker()
        self.fatal = []
        properties = read_meta_properties(self.files, f"{self.directory}/meta.properties")
        if properties is None:
            properties = format_directories(
                self.files,
                [self.directory],
                metadata_directory=self.directory,
                node_id=self.settings.node_id,
                cluster_id=None,
                controller_endpoint=CONTROLLERS,
                ids=self.ids,
                now_ms=self.clock.now_ms(),
                date="today",
                release_version=self.settings.ottla_release_version or NEWEST,
            )[self.directory]
        self.directory_id = properties.directory_id
        self.metadata = MetadataCache()
        self.loader = MetadataLoader(self.metadata)
        self.log = open_metadata_log(
            self.files,
            self.settings,
            directory_id=self.directory_id,
            was_clean=was_clean,
            clock=self.clock,
            flusher=Flusher(self.worker),
            worker=self.worker,
            on_fatal=self.fatal.append,
            once=lambda after_ms, job: self.clock.call_at(self.clock.monotonic_ms() + after_ms, job),
            listener=self.loader,
        )
        self.deltas = []
        self.loader.publish_to(lambda delta, image: self.deltas.append(delta))
        self.controller = LocalController(self.log, self.loader, ids=self.ids, settings=self.settings)
        self.ids.count += 1_000 * self.log.end_offset  # no run has the incarnation of another
        self.requests = ClusterRequests(self.controller, cluster_id="", clock=self.clock, others_can_join=False)
        self.own = OwnBroker(self.controller, self.requests)
        if registers:
            self.register(was_clean=was_clean)

    @property
    def image(self):
        """The image of now."""
        return self.metadata.image

    def register(self, *, was_clean):
        self.own.start(
            Registration(
                node_id=self.settings.node_id,
                incarnation_id=self.ids.uuid(),
                endpoints=[CLIENTS],
                controller_endpoint=CONTROLLERS,
                rack=None,
                metadata_directory_id=self.directory_id,
                directories=[self.directory_id],
            ),
            lambda: read_bootstrap(self.files, self.directory),
            was_clean=was_clean,
        )
        self.worker.work()
        self.deltas.clear()

    def create(self, *topics, validate_only=False, timeout_ms=1000):
        """Ask for topics; the list of results is empty until they are answered."""
        answers = []
        self.controller.create_topics(topics, timeout_ms=timeout_ms, validate_only=validate_only, then=answers.extend)
        return answers

    def delete(self, *topics, timeout_ms=1000):
        answers = []
        self.controller.delete_topics(topics, timeout_ms=timeout_ms, then=answers.extend)
        return answers

    def allocate_producer_ids(self, then, failed):
        self.controller.allocate_producer_ids(self.controller.node_id, self.controller.broker_epoch, then)

    def stop(self):
        self.own.send(wants_shutdown=True)
        self.worker.work()
        self.log.close()
