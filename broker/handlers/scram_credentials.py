"""DescribeUserScramCredentials and AlterUserScramCredentials (API keys 50 and 51; KIP-554)."""

from collections import Counter
from collections.abc import Sequence

from broker.controller.client import ControllerClient
from broker.controller.scram_credentials import CredentialResult, Deletion, Upsertion
from broker.coordinators.partitioning import java_hash
from broker.handlers.java_order import hash_map_order
from broker.metadata.cache import MetadataCache
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed, DuplicateResource, Fault, ResourceNotFound
from protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from protocol.records.cluster_metadata import UserScramCredentialRecord

Result = DescribeUserScramCredentialsResponse.Result


class ScramCredentialsHandler:
    """Reads the image and asks the controller."""

    def __init__(self, controller: ControllerClient, metadata: MetadataCache) -> None:
        self._controller = controller
        self._metadata = metadata

    def describe_user_scram_credentials(
        self, request: DescribeUserScramCredentialsRequest, context: RequestContext
    ) -> DescribeUserScramCredentialsResponse:
        """Tell mechanism and iterations of the users that are named, or of all; nothing of their passwords."""
        if not context.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not describe the credentials of users")
        known: dict[str, list[UserScramCredentialRecord]] = {}
        for record in self._metadata.image.scram_credentials.by_key.values():
            assert isinstance(record, UserScramCredentialRecord)
            known.setdefault(record.name, []).append(record)
        times = Counter(user.name for user in request.users or ())
        return DescribeUserScramCredentialsResponse(
            error_message="",
            results=[
                _described(user, known.get(user, ()), times[user])
                for user in hash_map_order(times or known, java_hash)  # as Kafka tells them
            ],
        )

    def alter_user_scram_credentials(self, request: AlterUserScramCredentialsRequest, context: RequestContext) -> None:
        """Answer once every credential that could be changed is durable."""
        if not context.may(Operation.ALTER, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not alter the credentials of users")
        wanted: list[Deletion | Upsertion] = [
            Deletion(deletion.name, deletion.mechanism) for deletion in request.deletions
        ]
        wanted += [
            Upsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
            for one in request.upsertions
        ]

        def altered(results: Sequence[CredentialResult]) -> None:
            context.respond(
                AlterUserScramCredentialsResponse(
                    results=[
                        AlterUserScramCredentialsResponse.Result(
                            user=result.user, error_code=result.error, error_message=result.message
                        )
                        for result in results
                    ]
                )
            )

        self._controller.alter_scram_credentials(wanted, then=altered)


def _described(user: str, credentials: Sequence[UserScramCredentialRecord], times: int) -> Result:
    result = Result(user=user, credential_infos=[])
    try:
        if times > 1:
            raise DuplicateResource(
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            )
        if not credentials:
            raise ResourceNotFound(f"Attempt to describe a user credential that does not exist: {user}")
    except Fault as fault:
        result.error_code = fault.code
        result.error_message = str(fault)
    else:
        result.error_message = ""
        result.credential_infos = [
            Result.CredentialInfo(mechanism=credential.mechanism, iterations=credential.iterations)
            for credential in sorted(credentials, key=lambda credential: credential.mechanism)
        ]
    return result
