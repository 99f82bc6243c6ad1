"""What the authorizer decides. That Kafka decides the same, tests/parity/scripts/acls.py shows."""

import gc
import os
import sys
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metadata.image.metadata_image import EMPTY, MetadataDelta, MetadataImage
from broker.request.permissions import Operation, ResourceType
from broker.security.acls.codes import ALL, EVERYBODY, WILDCARD, PatternType, PermissionType
from broker.security.acls.index import Acl
from broker.security.acls.standard_authorizer import MOST_REMEMBERED, StandardAuthorizer
from protocol.records.cluster_metadata import RemoveAccessControlEntryRecord
from tests.support.acls import EVERY_OPERATION, acl, denial

ALICE, HERE = "User:alice", "10.0.0.7"
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


class World:
    """An authorizer, and the image that it goes by."""

    def __init__(self, *acls: Acl, super_users: Iterable[str] = (), allow_everyone: bool = False) -> None:
        self.authorizer = StandardAuthorizer(frozenset(super_users), allow_everyone_if_no_acl_found=allow_everyone)
        self.image: MetadataImage = EMPTY
        self.change(*acls)

    def change(self, *added: Acl, removed: Iterable[Acl] = ()) -> None:
        delta = MetadataDelta(self.image)
        for one in added:
            delta.replay(one)
        for one in removed:
            delta.replay(RemoveAccessControlEntryRecord(id=one.id))
        self.image = delta.apply(self.image.end_offset + 1)
        self.authorizer.apply(delta, self.image)

    def may(
        self, operation: Operation, name: str = "orders", kind: ResourceType = TOPIC, principal: str = ALICE
    ) -> bool:
        return self.authorizer.permissions_of(principal, HERE).may(operation, kind, name)

    def may_any(self, operation: Operation = WRITE) -> bool:
        return self.authorizer.permissions_of(ALICE, HERE).may_any(operation, TOPIC)


def test_what_nothing_is_said_of_is_denied() -> None:
    assert not any(World().may(operation) for operation in EVERY_OPERATION)


def test_a_super_user_may_do_everything_whatever_denies_it() -> None:
    world = World(denial(WILDCARD, principal=EVERYBODY), super_users=["User:admin", ALICE])
    assert all(world.may(operation) for operation in EVERY_OPERATION)
    assert not world.may(READ, principal="User:bob")


def test_an_acl_is_for_its_principal_its_resource_and_its_operation() -> None:
    world = World(acl("orders", operation=READ))
    assert world.may(READ)
    assert not world.may(WRITE)
    assert not world.may(READ, "orders-2")
    assert not world.may(READ, kind=GROUP)
    assert not world.may(READ, principal="User:Alice")
    assert not world.may(READ, principal="Group:alice")


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER", "DESCRIBE"])
def test_these_operations_imply_that_the_resource_is_seen(operation: str) -> None:
    assert World(acl(operation=Operation[operation])).may(DESCRIBE)


@pytest.mark.parametrize("operation", ["CREATE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"])
def test_these_operations_do_not(operation: str) -> None:
    assert not World(acl(operation=Operation[operation])).may(DESCRIBE)


def test_who_may_alter_configs_may_see_them() -> None:
    assert World(acl(operation=Operation.ALTER_CONFIGS)).may(Operation.DESCRIBE_CONFIGS)
    assert not World(acl(operation=DESCRIBE)).may(Operation.DESCRIBE_CONFIGS)


def test_a_denial_wins_over_every_permission_and_implies_nothing() -> None:
    world = World(
        acl(), acl(WILDCARD, principal=EVERYBODY), denial("ord", operation=READ, pattern_type=PatternType.PREFIXED)
    )
    assert not world.may(READ)
    assert world.may(DESCRIBE)
    assert world.may(WRITE)


def test_a_resource_without_acls_may_be_everybodys() -> None:
    world = World(
        acl("orders", principal="User:bob"),
        acl("let", principal="User:bob", pattern_type=PatternType.PREFIXED),
        allow_everyone=True,
    )
    assert not world.may(READ, "orders")
    assert not world.may(READ, "letters")
    assert world.may(READ, "payments")
    assert world.may(READ, "orders", GROUP)
    world.change(acl(WILDCARD, principal="User:bob"))
    assert not world.may(READ, "payments")


def test_what_an_acl_allows_ends_with_it() -> None:
    allowing = acl()
    world = World(allowing)
    permissions = world.authorizer.permissions_of(ALICE, HERE)
    assert permissions.may(READ, TOPIC, "orders")
    generation = permissions.generation
    world.change(removed=[allowing])
    assert not permissions.may(READ, TOPIC, "orders")
    assert permissions.generation > generation
    assert world.authorizer.size == 0


def test_a_snapshot_replaces_all_acls() -> None:
    world = World(acl("orders"), acl("letters"))
    kept = [record for record in world.image.records() if record.resource_name == "letters"]  # type: ignore[attr-defined]
    delta = MetadataDelta.of_snapshot(world.image, [*kept, acl("payments")])
    world.authorizer.apply(delta, delta.apply(9))
    assert [world.may(READ, name) for name in ("orders", "letters", "payments")] == [False, True, True]


def test_connections_of_one_principal_and_host_share_what_is_remembered() -> None:
    authorizer = World().authorizer
    assert authorizer.permissions_of(ALICE, HERE) is authorizer.permissions_of(ALICE, HERE)
    assert authorizer.permissions_of(ALICE, HERE) is not authorizer.permissions_of(ALICE, "10.0.0.8")


def test_what_is_remembered_is_bounded() -> None:
    world = World(acl())
    permissions = world.authorizer.permissions_of(ALICE, HERE)
    for number in range(MOST_REMEMBERED + 10):
        permissions.may(READ, TOPIC, str(number))
    permissions.may(READ, TOPIC, "x" * 300)
    assert len(permissions._known) <= 10
    assert permissions.may(READ, TOPIC, "orders")


def test_decisions_are_counted() -> None:
    world = World(acl())
    for name in ("orders", "orders", "letters"):
        world.may(READ, name)
    assert (world.authorizer.stats.allowed, world.authorizer.stats.denied) == (2, 1)


@pytest.mark.parametrize(
    ("acls", "is_allowed"),
    [
        ([], False),
        ([acl("orders", operation=WRITE)], True),
        ([acl("ord", pattern_type=PatternType.PREFIXED)], True),
        ([acl("orders", operation=READ)], False),
        ([acl("orders", host="10.0.0.0/8")], True),
        ([acl("orders", host="10.0.0.8")], False),
        ([acl("orders", principal=EVERYBODY), denial("orders")], False),
        ([acl("orders"), acl("letters"), denial("orders")], True),
        ([acl("orders"), denial("ord", pattern_type=PatternType.PREFIXED)], False),
        ([acl("ord", pattern_type=PatternType.PREFIXED), denial("orders")], True),
        ([acl("ord", pattern_type=PatternType.PREFIXED), denial("ord", pattern_type=PatternType.PREFIXED)], False),
        ([acl(WILDCARD), denial("o", pattern_type=PatternType.PREFIXED)], True),
        ([acl("orders"), denial(WILDCARD, principal=EVERYBODY)], False),
    ],
)
def test_whether_there_may_be_a_topic_to_write_to(acls: list[Acl], is_allowed: bool) -> None:
    assert World(*acls).may_any() is is_allowed


_NAMES = st.sampled_from(["*", "a", "aa", "ab", "aba", "b"])
_ACLS = st.builds(
    acl,
    _NAMES,
    principal=st.sampled_from([ALICE, "User:bob", EVERYBODY]),
    operation=st.sampled_from([ALL, READ, WRITE]),
    resource_type=st.sampled_from([TOPIC, GROUP]),
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    host=st.sampled_from(["*", HERE, "10.0.0.8", "10.0.0.0/24"]),
    permission_type=st.sampled_from([PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.DENY]),
)


def naive(acls: Iterable[Acl], operation: Operation, name: str, *, allow_everyone: bool) -> bool:
    """The rules, over a list of all ACLs."""

    def concerns(one: Acl) -> bool:
        if one.resource_type != TOPIC:
            return False
        if one.pattern_type == PatternType.PREFIXED:
            return name.startswith(one.resource_name)
        return one.resource_name in (name, WILDCARD)

    about = [one for one in acls if concerns(one)]
    hits = [
        one
        for one in about
        if one.principal in (ALICE, EVERYBODY) and one.host != "10.0.0.8" and one.operation in (operation, ALL)
    ]
    if any(one.permission_type == PermissionType.DENY for one in hits):
        return False
    return bool(hits) or (allow_everyone and not about)


@given(st.lists(_ACLS, max_size=12), st.sets(st.integers(0, 11)), st.booleans())
def test_the_index_finds_what_a_walk_over_all_acls_finds(
    acls: list[Acl], removed: set[int], allow_everyone: bool
) -> None:
    world = World(*acls, allow_everyone=allow_everyone)
    gone = [acls[index] for index in removed if index < len(acls)]
    world.change(removed=gone)
    left = [one for one in acls if one not in gone]
    for name in ("a", "ab", "abab", "b", "c", "*"):
        for operation in (READ, WRITE):
            assert world.may(operation, name) is naive(left, operation, name, allow_everyone=allow_everyone)


MANY = int(os.environ.get("OTTLA_TEST_ACLS", "20000"))
"""The ACLs of others in the largest world of the test below."""


def test_a_decision_costs_the_same_beside_the_acls_of_all_others() -> None:
    def calls_of_a_decision(others: int) -> int:
        world = World(acl("orders", operation=READ))
        world.change(*(acl(f"topic-{number}", principal=f"User:{number}") for number in range(others)))
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += 1

        gc.disable()  # whose callbacks would count
        sys.setprofile(count)
        try:
            is_allowed = world.may(READ)
        finally:
            sys.setprofile(None)
            gc.enable()
        assert is_allowed
        assert not world.may(READ, "topic-7")
        assert world.may(READ, "topic-7", principal="User:7")
        return calls

    calls_of_a_decision(10)  # the first of a process looks up more
    assert calls_of_a_decision(MANY) == calls_of_a_decision(100)
