"""Settings that name classes of Java, none of which can be loaded here: what is taken, and what stops the start.

A class that decides who somebody is, or what he may do, is a guard that would silently not be there. So such a setting
takes Kafka's own class, named in full, whose work is done here, and no other. Without a class that only watches, such
as a reporter of metrics, a broker serves the same: it is accepted without effect.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from config.errors import SettingsError
from config.values import list_entries, trimmed

_SECURITY: Final = "org.apache.kafka.common.security."


class Where(Enum):
    """Where the value of a setting is checked."""

    EVERY_START = auto()
    SASL = auto()
    """By `config.sasl`, for each listener with SASL."""
    TLS = auto()
    """By `config.tls`, for each listener with TLS."""
    ITS_OWN_CHECK = auto()
    """By `config.consistency`, `config.authorizer` or `config.refusals`, since a name counts here."""
    NOWHERE = auto()
    """It is accepted without effect."""


class ClassSetting(NamedTuple):
    """One setting."""

    where: Where
    decides: str = ""
    """What its class decides: the end of a sentence."""
    kafkas: tuple[str, ...] = ()
    """Kafka's own classes, or names of them, that do what is done here."""


CLASS_SETTINGS: Final[Mapping[str, ClassSetting]] = {
    "alter.config.policy.class.name": ClassSetting(Where.EVERY_START, "which settings may be changed"),
    "authorizer.class.name": ClassSetting(Where.ITS_OWN_CHECK),
    "client.quota.callback.class": ClassSetting(Where.EVERY_START, "which quota a client has"),
    "config.providers": ClassSetting(Where.ITS_OWN_CHECK),
    "create.topic.policy.class.name": ClassSetting(Where.EVERY_START, "which topics may be created"),
    "group.consumer.assignors": ClassSetting(Where.ITS_OWN_CHECK),
    "group.share.assignors": ClassSetting(
        Where.EVERY_START,
        "who reads which partitions",
        ("simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"),
    ),
    "group.share.dlq.manager.class.name": ClassSetting(
        Where.EVERY_START,
        "what becomes of records that nobody takes",
        ("org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager",),
    ),
    "group.share.persister.class.name": ClassSetting(
        Where.EVERY_START,
        "where the states of share groups are kept",
        ("org.apache.kafka.server.share.persister.DefaultStatePersister",),
    ),
    "group.streams.assignors": ClassSetting(Where.ITS_OWN_CHECK),
    "group.streams.topology.description.plugin.class": ClassSetting(Where.NOWHERE),
    "kafka.metrics.reporters": ClassSetting(Where.NOWHERE),
    "metric.reporters": ClassSetting(Where.NOWHERE),
    "principal.builder.class": ClassSetting(
        Where.EVERY_START, "who a client is", (f"{_SECURITY}authenticator.DefaultKafkaPrincipalBuilder",)
    ),
    "remote.log.metadata.manager.class.name": ClassSetting(Where.NOWHERE),
    "remote.log.storage.manager.class.name": ClassSetting(Where.NOWHERE),
    "replica.selector.class": ClassSetting(Where.ITS_OWN_CHECK),
    "sasl.client.callback.handler.class": ClassSetting(
        Where.SASL,
        "what the broker answers as a client",
        (
            f"{_SECURITY}authenticator.SaslClientCallbackHandler",
            f"{_SECURITY}oauthbearer.internals.OAuthBearerSaslClientCallbackHandler",
        ),
    ),
    "sasl.login.callback.handler.class": ClassSetting(
        Where.SASL,
        "as whom the broker logs in",
        (
            f"{_SECURITY}authenticator.AbstractLogin$DefaultLoginCallbackHandler",
            f"{_SECURITY}oauthbearer.OAuthBearerLoginCallbackHandler",
        ),
    ),
    "sasl.login.class": ClassSetting(
        Where.SASL,
        "how the broker logs in",
        (f"{_SECURITY}authenticator.DefaultLogin", f"{_SECURITY}oauthbearer.internals.OAuthBearerRefreshingLogin"),
    ),
    "sasl.oauthbearer.jwt.retriever.class": ClassSetting(Where.NOWHERE),
    "sasl.oauthbearer.jwt.validator.class": ClassSetting(
        Where.SASL,
        "which tokens are right",
        (f"{_SECURITY}oauthbearer.DefaultJwtValidator", f"{_SECURITY}oauthbearer.BrokerJwtValidator"),
    ),
    "sasl.server.callback.handler.class": ClassSetting(
        Where.SASL, "which password is right", (f"{_SECURITY}plain.internals.PlainServerCallbackHandler",)
    ),
    "security.providers": ClassSetting(Where.EVERY_START, "how keys, certificates and logins are checked"),
    "ssl.engine.factory.class": ClassSetting(
        Where.TLS, "which certificates are right", (f"{_SECURITY}ssl.DefaultSslEngineFactory",)
    ),
    "ssl.provider": ClassSetting(Where.TLS, "how keys and certificates are checked"),
}
"""Every broker setting of Kafka's whose value is a class, or a name of one."""


def check_class(setting: str, key: str, text: str, *places: Where) -> None:
    """Check the value of a setting if it names classes and is checked in one of these places.

    Args:
        setting: The name without a listener and a mechanism.
        key: The name as it is given.
        text: The value.
        places: Where it may be checked.

    Raises:
        SettingsError: It names a class that is not Kafka's own.
    """
    one = CLASS_SETTINGS.get(setting)
    if one is None or one.where not in places or all(name in one.kafkas for name in list_entries(trimmed(text))):
        return
    kafkas = f", or name {' or '.join(one.kafkas)}" if one.kafkas else ""
    raise SettingsError(
        f"{key} is '{trimmed(text)}', but this broker cannot load classes of Java, and this one would decide "
        f"{one.decides}: leave it out{kafkas}"
    )
