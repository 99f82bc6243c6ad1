"""Random brokers register, stop, die, take replicas and change ISRs; what must hold for the metadata holds always.

Each seed is one cluster. A record that min.insync.replicas replicas have acknowledged must be in the log of each leader
that was not elected uncleanly. `OTTLA_TEST_CLUSTERS=100000` tries as many clusters, with new seeds each time.
"""

import os
from random import Random

import pytest

from broker.metadata.cache import MetadataCache
from broker.metadata.directories import is_online
from broker.metadata.loader import MetadataLoader
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import NO_LEADER
from tests.support.metadata import Batch
from tests.unit.broker.controller.cluster import OWN, Broker, Cluster

CLUSTERS = int(os.environ.get("OTTLA_TEST_CLUSTERS", "0"))
SEEDS = [Random().randrange(1 << 32) for _ in range(CLUSTERS)] or range(300)
STEPS = 60
TOPICS = {"orders": 2, "plain": 1, "loose": 1}
"""Topics, and their min.insync.replicas."""


class Walk:
    """One cluster. ``logs`` has what each broker's replicas contain, ``acknowledged`` what must not be lost."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.has_elr = self.random.random() < 0.6
        self.cluster = Cluster(elr=self.has_elr)
        self.brokers = {
            number: Broker(self.cluster, number, directories=self.random.choice([1, 1, 2])) for number in (2, 3, 4, 5)
        }
        self.alive = {OWN}
        self.was_clean = dict.fromkeys(self.brokers, True)
        self.stopping = set()
        self.logs = {}
        self.acknowledged = {}
        self.count = 0
        for number in self.brokers:
            self.start(number, readiness=1)
        for name, min_isr in TOPICS.items():
            self.cluster.topic(
                name,
                *(self.random.sample(range(1, 6), 3) for _ in range(3)),
                min_insync_replicas=str(min_isr),
                unclean_leader_election_enable="true" if name == "loose" else "false",
            )
        self.before = {}
        self.look()

    # Steps

    def start(self, number, readiness=0.8):
        broker = self.brokers[number]
        if number in self.alive:
            return
        previous = broker.epoch if self.was_clean[number] else -1
        error = broker.register(previous_epoch=previous)
        if error is ErrorCode.NONE:
            self.alive.add(number)
            self.stopping.discard(number)
            self.was_clean[number] = False
            if self.random.random() < readiness:
                broker.heartbeat()
        else:
            assert error is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    def kill(self, number):
        """The broker is gone. With eligible leaders (KIP-966) it may lose the end of its logs: that is noticed."""
        self.alive.discard(number)
        self.stopping.discard(number)
        self.was_clean[number] = False
        if self.has_elr:
            for by_broker in self.logs.values():
                log = by_broker.get(number, [])
                by_broker[number] = log[: self.random.randint(0, len(log))]

    def restart_controller(self, *, was_clean):
        if was_clean:
            for _ in range(20):
                if self.cluster.own_heartbeat(wants_shutdown=True).should_shut_down:
                    break
                self.time()
            else:
                raise AssertionError("the controller's own broker never may stop")
            self.look()
        elif self.has_elr:
            for (name, index), by_broker in self.logs.items():
                log = by_broker.get(OWN, [])
                by_broker[OWN] = log[: self.random.randint(0, len(log))]
                registered = self.cluster.image.cluster.brokers.keys()
                if registered & {*self.cluster.partition(name, index).replicas} == {OWN}:
                    # All other replicas are gone for good.
                    self.acknowledged[name, index] = list(by_broker[OWN])
        self.cluster = self.cluster.restarted(was_clean=was_clean)
        for broker in self.brokers.values():
            broker.cluster = self.cluster

    def stop(self, number):
        """The broker asks to stop, or asks again, and stops if it may."""
        if number not in self.alive:
            return
        self.stopping.add(number)
        if self.brokers[number].heartbeat(shutdown=True).should_shut_down:
            self.alive.discard(number)
            self.stopping.discard(number)
            self.was_clean[number] = True

    def heartbeats(self):
        for number in self.alive - {OWN} - self.stopping:
            self.brokers[number].heartbeat()
            self.look()

    def time(self):
        for _ in range(self.random.randint(1, 6)):
            self.cluster.clock.advance(2_000)
            self.heartbeats()
            self.cluster.check_sessions()
            self.look()

    def is_online(self, partition, broker):
        """Whether the directory of a replica is one that its broker has."""
        return is_online(partition.directory_of(broker), self.cluster.image.cluster.brokers[broker].log_dirs)

    def alter_isr(self):
        name, index, partition = self.any_partition()
        if partition.leader not in self.alive:
            return
        isr = [broker for broker in partition.replicas if broker == partition.leader or self.random.random() < 0.7]
        before = set(partition.isr)
        answer = self.cluster.alter_isr(isr, name, index)
        eligible = {
            broker
            for broker in isr
            if self.is_active(broker) and (broker in before or self.is_online(partition, broker))
        }
        if answer.error_code in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED):
            assert eligible == set(isr)
            logs = self.logs.setdefault((name, index), {})
            for broker in set(isr) - before:  # it has caught up, or it would not have been asked for
                logs[broker] = list(logs.get(partition.leader, []))
        else:
            assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
            assert eligible != set(isr)

    def produce(self):
        name, index, partition = self.any_partition()
        if partition.leader not in self.alive:
            return
        logs = self.logs.setdefault((name, index), {})
        self.count += 1
        log = [*logs.get(partition.leader, []), self.count]
        for broker in partition.isr:
            if broker in self.alive:
                logs[broker] = list(log)
        min_isr = min(TOPICS[name], len(self.cluster.partition(name, 0).replicas), len(partition.replicas))
        if set(partition.isr) <= self.alive and len(partition.isr) >= min_isr:
            self.acknowledged[name, index] = log

    def reassign(self):
        name, index, partition = self.any_partition()
        if self.random.random() < 0.3:
            (error,) = self.cluster.reassign((name, index, None))
            moving = partition.adding_replicas or partition.removing_replicas
            assert error in (ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT) if moving else error
        else:
            registered = [*self.cluster.image.cluster.brokers]
            replicas = self.random.sample(registered, min(len(registered), self.random.choice([2, 3, 3, 4])))
            assert self.cluster.reassign((name, index, replicas)) == [ErrorCode.NONE]

    def fail_directory(self):
        number = self.random.choice([*self.brokers])
        broker = self.brokers[number]
        if number in self.alive - self.stopping and len(broker.directories) > 1:
            broker.heartbeat(offline=[broker.directories.pop()])

    def assign(self):
        name, index, partition = self.any_partition()
        number = self.random.choice(partition.replicas)
        if number in self.alive - {OWN}:
            broker = self.brokers[number]
            topic_id = self.cluster.image.topics.by_name[name].topic_id
            assert broker.assign(self.random.choice(broker.directories), (topic_id, index)) == [ErrorCode.NONE]

    def step(self):
        number = self.random.choice([*self.brokers])
        kind = self.random.choices(
            ["start", "kill", "stop", "fence", "time", "isr", "produce", "reassign", "elect", "unclean", "directory",
             "assign", "crash", "restart", "unregister"],
            [8, 3, 5, 2, 8, 12, 12, 5, 3, 1, 1, 3, 1, 1, 0.5],
        )[0]  # fmt: skip
        match kind:
            case "start":
                self.start(number)
            case "kill" if number in self.alive:
                self.kill(number)
            case "stop":
                self.stop(number)
            case "fence" if number in self.alive - self.stopping:
                self.brokers[number].heartbeat(fence=True)
            case "time":
                self.time()
            case "isr":
                self.alter_isr()
            case "produce":
                self.produce()
            case "reassign":
                self.reassign()
            case "elect":
                self.cluster.elect(0)
            case "unclean":
                self.cluster.elect(1)
            case "directory":
                self.fail_directory()
            case "assign":
                self.assign()
            case "crash" | "restart":
                self.restart_controller(was_clean=kind == "restart")
            case "unregister" if number not in self.alive and number in self.cluster.image.cluster.brokers:
                self.cluster.controller.unregister_broker(number, lambda: None)
        return kind

    # What must hold

    def look(self):
        """The invariants, compared with the last look."""
        image = self.cluster.image
        for broker_id, broker in image.cluster.brokers.items():
            assert broker.broker_epoch >= self.before.get(broker_id, -1)
            self.before[broker_id] = broker.broker_epoch
        for name, index, partition in self.partitions():
            self.look_at(name, index, partition)

    def look_at(self, name, index, partition):
        where = (name, index)
        isr, elr = set(partition.isr), set(partition.eligible_leader_replicas)
        assert isr <= set(partition.replicas)
        assert elr <= set(partition.replicas)
        assert not isr & elr
        assert len(partition.directories) == len(partition.replicas)
        assert set(partition.adding_replicas) <= set(partition.replicas)
        assert set(partition.removing_replicas) <= set(partition.replicas)
        if partition.leader != NO_LEADER:
            assert partition.leader in isr
            assert not elr or len(isr) < TOPICS[name]
        for broker in isr | {partition.leader} - {NO_LEADER}:
            if not self.is_active(broker):
                # Without eligible leaders the last replica in sync stays so.
                assert not self.has_elr
                assert (partition.leader, isr) == (NO_LEADER, {broker})
        last = self.before.get(where)
        self.before[where] = partition
        if last is None or last == partition:
            return
        assert partition.partition_epoch > last.partition_epoch
        assert partition.leader_epoch >= last.leader_epoch
        if partition.leader_epoch == last.leader_epoch:
            assert partition.leader == last.leader
            return
        if partition.leader != NO_LEADER:
            log = self.logs.setdefault(where, {}).get(partition.leader, [])
            if partition.leader_recovery_state:  # an unclean election
                # The controller's own broker goes and comes back in one step.
                assert last.leader == NO_LEADER or name == "loose" or partition.leader == last.leader
                self.acknowledged[where] = list(log)
            if partition.leader not in self.alive:
                return  # it serves nobody before it registers anew, which takes it out of the ISR
            acknowledged = self.acknowledged.get(where, [])
            assert log[: len(acknowledged)] == acknowledged, f"{where} has lost records at broker {partition.leader}"

    def partitions(self):
        for topic in self.cluster.image.topics.by_name.values():
            for partition in topic.partitions:
                yield topic.name, partition.index, partition

    def any_partition(self):
        return self.random.choice([*self.partitions()])

    def is_active(self, broker_id):
        broker = self.cluster.image.cluster.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


@pytest.mark.parametrize("seed", SEEDS)
def test_random_brokers_lose_no_acknowledged_record(seed):
    walk = Walk(seed)
    done = []
    try:
        for _ in range(STEPS):
            done.append(walk.step())
            walk.look()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, after {', '.join(done)}: {error}") from error
    assert [*replayed(walk.cluster.log.batches).records()] == [*walk.cluster.image.records()]
    assert [*walk.cluster.cache.image.records()] == [*walk.cluster.image.records()]


def replayed(batches):
    """The image that a broker makes of the metadata log."""
    loader = MetadataLoader(MetadataCache())
    for batch in batches:
        loader.handle_commit([Batch(loader.image.end_offset, batch)])
    return loader.image
