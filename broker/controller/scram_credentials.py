"""What it takes to change SCRAM credentials (KIP-554): every check of AlterUserScramCredentials, then the records.

A credential is what RFC 5802 lets a server keep instead of a password: salt, iterations, and two keys that are made of
the salted password.
"""

import hashlib
import hmac
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import Record
from broker.metadata.record_versions import SCRAM_SINCE
from broker.request.faults import (
    DuplicateResource,
    Fault,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord


class ScramMechanism(IntEnum):
    """How passwords are hashed, by the codes of the protocol and of the metadata log."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


MOST_ITERATIONS: Final = 16_384
LEAST_ITERATIONS: Final = 4_096

_HASHES: Final = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


class Deletion(NamedTuple):
    """A credential that a user shall not have any more."""

    user: str
    mechanism: int
    """A `ScramMechanism`, or a number that a client made up."""


class Upsertion(NamedTuple):
    """A credential that a user shall have, instead of one of the same mechanism or anew."""

    user: str
    mechanism: int
    """A `ScramMechanism`, or a number that a client made up."""
    iterations: int
    salt: bytes
    salted_password: bytes


Wish: TypeAlias = Deletion | Upsertion


class CredentialResult(NamedTuple):
    """What became of the credentials of one user."""

    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class CredentialPlanner:
    """Plans changes against one image: the records to append, and what to answer once they are durable."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.records: list[Record] = []

    def plan(self, wanted: Sequence[Wish]) -> list[CredentialResult]:
        """Check all changes of one request. The answer has each user once; no user is changed more than once."""
        by_user: dict[str, list[Wish]] = {}
        for wish in wanted:
            by_user.setdefault(wish.user, []).append(wish)
        results = []
        for user, (wish, *others) in by_user.items():
            try:
                self._check(wish)
                if others:
                    raise DuplicateResource("A user credential cannot be altered twice in the same request")
            except Fault as fault:
                results.append(CredentialResult(user, fault.code, str(fault)))
            else:
                self.records.append(_record(wish))
                results.append(CredentialResult(user))
        return results

    def _check(self, wish: Wish) -> None:
        if self._image.features.metadata_version < SCRAM_SINCE:
            raise UnsupportedVersion("The current metadata version does not support SCRAM")
        if not wish.user:
            raise UnacceptableCredential("Username must not be empty")
        if wish.mechanism not in tuple(ScramMechanism):
            raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
        if isinstance(wish, Upsertion):
            if wish.iterations < LEAST_ITERATIONS:
                raise UnacceptableCredential("Too few iterations")
            if wish.iterations > MOST_ITERATIONS:
                raise UnacceptableCredential("Too many iterations")
            if not wish.salted_password:
                raise UnacceptableCredential("The salted password is empty")
        elif (wish.user, wish.mechanism) not in self._image.scram_credentials.by_key:
            raise ResourceNotFound("Attempt to delete a user credential that does not exist")


def _record(wish: Wish) -> Record:
    if isinstance(wish, Deletion):
        return RemoveUserScramCredentialRecord(name=wish.user, mechanism=wish.mechanism)
    name = _HASHES[ScramMechanism(wish.mechanism)]
    client_key = hmac.digest(wish.salted_password, b"Client Key", name)
    return UserScramCredentialRecord(
        name=wish.user,
        mechanism=wish.mechanism,
        salt=wish.salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(wish.salted_password, b"Server Key", name),
        iterations=wish.iterations,
    )
