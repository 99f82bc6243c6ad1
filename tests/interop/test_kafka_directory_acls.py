"""ACLs change hands with the directory, from Ottla to Apache Kafka and back, in the log and in snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from protocol.messages.acls import CreateAclsRequest
from tests.interop import programs
from tests.interop.directories import METADATA_DIRECTORY, SharedDirectory, Visitor, complaints_of_dump_log
from tests.interop.test_handover import of_type
from tests.support.acls import acl, creation, deletion, denial, description

pytestmark = pytest.mark.timeout(300)  # several starts of a Java broker, on whatever machine

AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
}


def test_acls_of_ottla_are_kafkas_and_ottlas_again(shared: SharedDirectory, kafka_version: str) -> None:
    shared.ottla.settings |= AUTHORIZER
    shared.kafka.settings |= AUTHORIZER
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        ottla.create("orders")
        create(ottla, acl("orders"), acl("ord", pattern_type=4), denial("*", host="10.0.0.7"), acl("gone"))
        ottla.ask(deletion(resource_name_filter="gone"), 3)
        of_ottla = acls(ottla)
    shared.ottla.stop()
    assert complaints_of_dump_log(programs.java(), shared.data) == []
    records = stored(shared.data)
    assert len(records) == len(of_ottla) == 3

    shared.kafka.start()
    with Visitor(shared.kafka.bootstrap) as kafka:
        assert acls(kafka) == of_ottla
        create(kafka, acl("letters", operation=3), acl("readers", resource_type=3))
        kafka.ask(deletion(resource_name_filter="*"), 3)
        for number in range(30):
            kafka.create(f"more-{number}")
        of_kafka = acls(kafka)
    shared.kafka.stop()

    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        assert acls(ottla) == of_kafka
        for number in range(30):
            ottla.create(f"later-{number}")
    shared.ottla.stop()
    kept = {one["id"]: one for one in stored(shared.data)}
    assert all(kept[one["id"]] == one for one in records if one["resourceName"] != "*")
    assert complaints_of_dump_log(programs.java(), shared.data) == []

    shared.kafka.start()
    with Visitor(shared.kafka.bootstrap) as kafka:
        assert acls(kafka) == of_kafka
    shared.kafka.stop()


def create(broker: Visitor, *wanted: Any) -> None:
    request: CreateAclsRequest = creation(*wanted)
    assert {result.error_code for result in broker.ask(request, 3).results} == {0}


def acls(broker: Visitor) -> set[tuple[Any, ...]]:
    return {
        (
            *(resource.resource_type, resource.pattern_type, resource.resource_name),
            *(one.principal, one.host, one.operation, one.permission_type),
        )
        for resource in broker.ask(description(), 3).resources
        for one in resource.acls
    }


def stored(data: Path) -> list[dict[str, Any]]:
    """The ACLs that are left of the records in the newest snapshot and the log, as Kafka's tool reads them."""
    found: dict[str, dict[str, Any]] = {}
    directory = data / METADATA_DIRECTORY
    for path in (*sorted(directory.glob("*.checkpoint"))[-1:], *sorted(directory.glob("*.log"))):
        words = ["--cluster-metadata-decoder", "--files", str(path)]
        dumped = programs.run([*programs.java(), "org.apache.kafka.tools.DumpLogSegments", *words]).done().lines
        found |= {one["id"]: one for one in of_type(dumped, "ACCESS_CONTROL_ENTRY_RECORD")}
        for one in of_type(dumped, "REMOVE_ACCESS_CONTROL_ENTRY_RECORD"):
            found.pop(one["id"], None)
    return list(found.values())
