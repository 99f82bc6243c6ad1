"""What can go wrong with a request, and the one table from exception to Kafka's error code.

The broker refuses in one way: it raises. A `Fault` carries its code; the exceptions of storage and config speak their
own layer's language and get their codes from the table here. Handlers catch them where an answer has an error for each
topic or partition, and `broker.dispatch.dispatcher` for the request as a whole (`protocol.refusals`).

The state machines of the coordinators are the exception: they return an `ErrorCode`, which is what Kafka's protocol of
groups is about (UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS tell a client what to do next), and they know no broker around
them (docs/decisions/refusing.md).
"""

import logging

from config.errors import InvalidConfig
from protocol.errors import ErrorCode
from protocol.primitives import Malformed
from storage import errors as storage

log = logging.getLogger(__name__)


class Fault(Exception):
    """Something a client asked for that the broker refuses; each kind has its error code."""

    code: ErrorCode


class UnknownTopicOrPartition(Fault):
    """There is no such topic, or it has no such partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicId(Fault):
    """No topic has this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class InconsistentTopicId(Fault):
    """The topic of this name has another id: it was deleted and made again."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class FetchSessionIdNotFound(Fault):
    """No fetch session has this id, or no longer."""

    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpoch(Fault):
    """A fetch that is not the next one of its session."""

    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class FetchSessionTopicIdError(Fault):
    """A fetch with topic names in a session of topic ids, or the other way round."""

    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class InvalidTopic(Fault):
    """A name that no topic may have, or a topic that clients may not write to."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicAlreadyExists(Fault):
    """A topic of this name is there already."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitions(Fault):
    """A number of partitions that the topic cannot have."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactor(Fault):
    """A number of replicas that there are no brokers for."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(Fault):
    """Replicas that a client wants where they cannot be."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class NoReassignmentInProgress(Fault):
    """The partition is not being moved."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class InvalidConfiguration(Fault):
    """Configs that a resource cannot have."""

    code = ErrorCode.INVALID_CONFIG


class NotLeaderOrFollower(Fault):
    """This node does not lead the partition."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FencedLeaderEpoch(Fault):
    """The client's leader epoch is older than the partition's."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(Fault):
    """The client knows a leader epoch that this node has not reached."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicas(Fault):
    """acks=all, and fewer replicas are in sync than ``min.insync.replicas`` demands."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class RequestTimedOut(Fault):
    """What the request waited for did not happen in its time."""

    code = ErrorCode.REQUEST_TIMED_OUT


class StreamsInvalidTopology(Fault):
    """The topology of a Kafka Streams application contradicts itself, or has topics that it may not have."""

    code = ErrorCode.STREAMS_INVALID_TOPOLOGY


class TopicAuthorizationFailed(Fault):
    """The principal has no right to do this to the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailed(Fault):
    """The principal has no right to do this to the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationFailed(Fault):
    """The principal has no right to do this to the cluster."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class InvalidGroupId(Fault):
    """A name that no group with members may have."""

    code = ErrorCode.INVALID_GROUP_ID


class CoordinatorLoadInProgress(Fault):
    """The coordinator is here, and still reads what it has to know."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailable(Fault):
    """There is no coordinator yet, or none any more."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinator(Fault):
    """Another node, or none, is the coordinator."""

    code = ErrorCode.NOT_COORDINATOR


class InvalidRequiredAcks(Fault):
    """Acks other than 0, 1 and -1."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class NegativeFetchSize(Fault):
    """A fetch of fewer than no bytes; Kafka finds no better code for it."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class UnknownIsolationLevel(Fault):
    """Neither read_uncommitted nor read_committed; Kafka finds no better code for it."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class TopicWithoutName(Fault):
    """A topic that has neither a name nor an id; Kafka finds no better code for it."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class InvalidRequest(Fault):
    """The request contradicts itself."""

    code = ErrorCode.INVALID_REQUEST


class MismatchedEndpointType(Fault):
    """A broker's listener is asked for controllers."""

    code = ErrorCode.MISMATCHED_ENDPOINT_TYPE


class RebootstrapRequired(Fault):
    """The client means to ask another node or cluster: it has to look for that anew (KIP-1242)."""

    code = ErrorCode.REBOOTSTRAP_REQUIRED


class UnsupportedEndpointType(Fault):
    """Neither brokers nor controllers are asked for."""

    code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


class PolicyViolation(Fault):
    """What the resource's own settings do not allow."""

    code = ErrorCode.POLICY_VIOLATION


class ThrottlingQuotaExceeded(Fault):
    """A change of topics by a client that has changed too much in the last seconds."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class UnsupportedVersion(Fault):
    """A request that this version of the API cannot express."""

    code = ErrorCode.UNSUPPORTED_VERSION


class PrincipalDeserializationFailure(Fault):
    """An envelope whose principal cannot be read."""

    code = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


class TransactionalIdAuthorizationFailed(Fault):
    """A transaction without the right to its transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class UnacceptableCredential(Fault):
    """A SCRAM credential that no user may have."""

    code = ErrorCode.UNACCEPTABLE_CREDENTIAL


class DuplicateResource(Fault):
    """The request names the same user twice."""

    code = ErrorCode.DUPLICATE_RESOURCE


class ResourceNotFound(Fault):
    """There is no such credential."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class UnsupportedSaslMechanism(Fault):
    """There is no such SASL mechanism."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class IllegalSaslState(Fault):
    """An authentication where none is due."""

    code = ErrorCode.ILLEGAL_SASL_STATE


class SecurityDisabled(Fault):
    """There is no authorizer, so there are no ACLs."""

    code = ErrorCode.SECURITY_DISABLED


class DelegationTokenRequestNotAllowed(Fault):
    """A delegation token is asked for over a connection that is not authenticated."""

    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class DelegationTokenAuthDisabled(Fault):
    """There are no delegation tokens, since there is no key that they would be made with."""

    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


class DelegationTokenNotFound(Fault):
    """There is no such delegation token."""

    code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class DelegationTokenOwnerMismatch(Fault):
    """The delegation token is another user's."""

    code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


class DelegationTokenAuthorizationFailed(Fault):
    """The client may not make delegation tokens of another user."""

    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class DelegationTokenExpired(Fault):
    """The delegation token has expired."""

    code = ErrorCode.DELEGATION_TOKEN_EXPIRED


class InvalidPrincipalType(Fault):
    """A principal that is no user."""

    code = ErrorCode.INVALID_PRINCIPAL_TYPE


class InvalidUpdateVersion(Fault):
    """A level that a feature cannot have here."""

    code = ErrorCode.INVALID_UPDATE_VERSION


class LogDirNotFound(Fault):
    """The broker has no log directory of this path."""

    code = ErrorCode.LOG_DIR_NOT_FOUND


class BrokerIdNotRegistered(Fault):
    """No broker of this id is registered."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class DuplicateBrokerRegistration(Fault):
    """Another run of the broker is registered, and was in contact just now."""

    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class InvalidRegistration(Fault):
    """A broker as the cluster can have none."""

    code = ErrorCode.INVALID_REGISTRATION


class ControllerIdNotRegistered(Fault):
    """No controller of this id is registered."""

    code = ErrorCode.CONTROLLER_ID_NOT_REGISTERED


class InconsistentClusterId(Fault):
    """The request is meant for another cluster."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class DuplicateVoter(Fault):
    """The controller votes already."""

    code = ErrorCode.DUPLICATE_VOTER


class VoterNotFound(Fault):
    """The controller does not vote, or is the only one that does."""

    code = ErrorCode.VOTER_NOT_FOUND


class TransactionalIdNotFound(Fault):
    """No producer has this transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class UnsupportedAssignor(Fault):
    """An assignor that this broker does not have."""

    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class MemberRefused(Fault):
    """The group's state machine says that this is none of its members, or not in this epoch."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(f"the group answers {code.name}")
        self.code = code


class InvalidRegularExpression(Fault):
    """A pattern that is none."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class InvalidRecordState(Fault):
    """An acknowledgement of records that the member does not hold."""

    code = ErrorCode.INVALID_RECORD_STATE


class ShareSessionNotFound(Fault):
    """The member has no share session here, or no longer."""

    code = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidShareSessionEpoch(Fault):
    """A request that is not the next of its share session."""

    code = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class ShareSessionLimitReached(Fault):
    """There are as many share sessions as ``group.share.max.share.sessions`` allows."""

    code = ErrorCode.SHARE_SESSION_LIMIT_REACHED


class GroupIdNotFound(Fault):
    """There is no such group."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class OffsetNotAvailable(Fault):
    """There is no offset for what was asked, or not yet."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class ShareStateFailure(Fault):
    """The state of a share group in a partition cannot be read or written, for a reason that is not the client's."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


_CODES: dict[type[Exception], ErrorCode] = {
    Malformed: ErrorCode.INVALID_REQUEST,
    InvalidConfig: ErrorCode.INVALID_CONFIG,
    storage.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    storage.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    storage.BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    storage.BatchLargerThanSegment: ErrorCode.RECORD_LIST_TOO_LARGE,
    storage.InvalidRecord: ErrorCode.INVALID_RECORD,
    storage.RecordTooLarge: ErrorCode.INVALID_RECORD,
    storage.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    storage.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    # Kafka's answer to records that no codec can read, seen on 4.4.0: clients take it for the broker's fault.
    storage.UndecodableRecords: ErrorCode.UNKNOWN_SERVER_ERROR,
    storage.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    storage.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    storage.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    storage.TransactionCoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    storage.LogMoved: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    storage.LogRemoved: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    storage.DiskFull: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.TooManyOpenFiles: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.LogDirFailed: ErrorCode.KAFKA_STORAGE_ERROR,
}


def error_code_of(error: Exception) -> ErrorCode:
    """The code that tells a client of ``error``. What is not in the table is a bug: UNKNOWN_SERVER_ERROR, logged once
    with its traceback."""
    if isinstance(error, Fault):
        return error.code
    for kind in type(error).__mro__:
        code = _CODES.get(kind)
        if code is not None:
            return code
    log.error("unexpected %s: %s", type(error).__name__, error, exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR
