"""Consumer processes, which use a group as clients do."""

from broker.coordinators.group.requests import Protocol
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.group.harness import Client

PARTITIONS = tuple("abcd")
EAGER, COOPERATIVE = "range", "cooperative-sticky"
PROTOCOLS = (EAGER, COOPERATIVE), (COOPERATIVE, EAGER), (COOPERATIVE,)


class Process:
    """One process of a consumer, with or without an instance id; it may be killed and begin anew."""

    def __init__(self, walk, number, *, instance_id, names, **about):
        self.walk = walk
        self.number = number
        self.names = names
        self.about = about | {"instance_id": instance_id}
        self.corpses = []
        """What earlier processes knew; their requests may still arrive."""
        self.begin()

    def begin(self):
        self.client = Client(self.walk.groups, f"m{self.number}", **self.about)
        self.owned = frozenset()
        self.assigned_in = None
        """How often the group had been deleted then, and its generation."""
        self.is_out = True
        self.is_refused = False
        self.is_stalled = False
        self.next = "join"
        self.reply = None
        self.asked = None

    def __repr__(self):
        return f"{self.client.name} {self.client.member_id or '(new)'}"

    @property
    def is_cooperative(self):
        """It keeps what it has while others join. Who may have to do it the other way, does it the other way."""
        return self.names == (COOPERATIVE,)

    @property
    def identity(self):
        return self.client.instance_id or self.client.member_id

    # What it does by itself.

    def goes_on(self, choice):
        """Read what has been answered, or ask for what it needs next."""
        if self.reply is not None and not self.reply.is_parked:
            reply, self.reply = self.reply, None
            (self._has_joined if self.asked == "join" else self._has_synced)(reply.answer, choice)
        elif self.reply is None:
            self.asks(choice)

    def asks(self, choice):
        """Ask for it, again if it has been asked already: the answer may have been lost."""
        self.is_out = False
        if self.reply is None:
            self.asked = self.next
        if self.asked == "join":
            if not self.is_cooperative:
                self.owned = frozenset()
            self.reply = self.walk.waits(self.client.asks_to_join(protocols=self._protocols()))
        elif self.asked == "sync":
            self.asked_in = self.walk.incarnation
            self.reply = self.walk.waits(self.client.asks_to_sync(self._assignment(choice)))
        else:
            self.beats()

    def _protocols(self):
        self.claims = self.owned
        metadata = "".join(sorted(self.claims)).encode()
        return tuple(Protocol(name, metadata if name == COOPERATIVE else b"") for name in self.names)

    def _has_joined(self, joined, choice):
        client = self.client
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = joined.member_id
        elif joined.error is ErrorCode.NONE:
            client.takes(joined)
            self.is_refused = False
            self.led = joined
            self.next = "sync"
            assert joined.skip_assignment <= (joined.leader == client.member_id)
            assert bool(joined.members) <= (joined.leader == client.member_id)
        else:
            self._is_told(joined.error)

    def _assignment(self, choice):
        """The leader shares out the partitions, otherwise each time; who would have to give one up keeps nothing of
        it, and nobody else has it in this generation."""
        joined = self.led
        if joined.leader != self.client.member_id or joined.skip_assignment:
            return {}
        members = [(member.member_id, member.metadata.decode()) for member in joined.members]
        shares = {member_id: "" for member_id, _ in members}
        for place, partition in enumerate(PARTITIONS):
            member_id, _ = members[(place * choice + place + choice) % len(members)]
            claimed_by = {claimer for claimer, claims in members if partition in claims}
            if joined.protocol != COOPERATIVE or not claimed_by - {member_id}:
                shares[member_id] += partition
        return {member_id: share.encode() for member_id, share in shares.items()}

    def _has_synced(self, synced, choice):
        if synced.error is not ErrorCode.NONE:
            self._is_told(synced.error)
            return
        assigned = frozenset(synced.assignment.decode())
        # What it has had to give up is nobody's: the others have to be told.
        self.next = "join" if self.claims - assigned else "beat"
        self.owned = assigned
        self.assigned_in = self.asked_in, self.client.generation
        self.walk.owns(self)
        if self.client.instance_id is not None:
            # That it has the instance id now stands in the log.
            self.walk.fenced.update(about["member_id"] for about, *_ in self.corpses)

    def _is_told(self, error):
        # Of members that a coordinator has loaded it knows one protocol only, as Kafka does.
        self.is_refused = error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            self.owned = frozenset()
            if error is not ErrorCode.ILLEGAL_GENERATION:
                self.client.member_id = ""
        self.next = "join"

    def beats(self):
        error = self.client.beats()
        if error is not ErrorCode.NONE:
            self._is_told(error)

    def commits(self, *, as_corpse=False):
        about, owned, was_assigned = self.corpses[-1] if as_corpse and self.corpses else self._knows()
        if about["generation"] >= 0 and owned:
            self.walk.commits(min(owned), about, was_assigned=was_assigned)

    def _knows(self):
        """What its requests say of it, what it owns, and whether its generation's leader has given it that."""
        client = self.client
        about = {"generation": client.generation, "member_id": client.member_id, "instance_id": client.instance_id}
        return about, self.owned, self.assigned_in == (self.walk.incarnation, client.generation)

    def changes(self, how):
        """It knows other protocols from now on."""
        self.names = PROTOCOLS[how % len(PROTOCOLS)]
        if self.reply is None and self.next == "beat":
            self.next = "join"

    def dies(self):
        self.corpses.append(self._knows())
        self.begin()

    def leaves(self):
        if self.client.member_id:
            self.walk.waits(self.client.leaves())
            self.corpses.append(self._knows())
            self.begin()
