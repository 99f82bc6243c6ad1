"""The settings of the authorizer, which Kafka's broker itself does not define. Read where there is one only."""

from typing import Final, NamedTuple

from config.broker_settings import BrokerSettings
from config.errors import InvalidConfig
from config.values import ConfigType, parse_value

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's authorizer over the ACLs in the metadata log, and the only one here."""

SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
SETTINGS_OF_AUTHORIZER: Final = (ALLOW_EVERYONE, SUPER_USERS)


class AuthorizerSettings(NamedTuple):
    """What an authorizer is told."""

    super_users: frozenset[str]
    """Principals that may do everything."""
    allow_everyone_if_no_acl_found: bool
    """Whether everybody may do everything to a resource that no ACL is about."""


def authorizer_settings(settings: BrokerSettings) -> AuthorizerSettings:
    """The settings of the authorizer.

    Raises:
        InvalidConfig: A value is wrong.
    """
    text = settings.given.get(SUPER_USERS, "")
    super_users = frozenset(filter(None, map(str.strip, text.split(";"))))
    if any(":" not in principal for principal in super_users):
        raise InvalidConfig(SUPER_USERS, text, "principals, separated by semicolons: User:alice;User:bob")
    allow_everyone = parse_value(ALLOW_EVERYONE, ConfigType.BOOLEAN, "", settings.given.get(ALLOW_EVERYONE, "false"))
    return AuthorizerSettings(super_users, bool(allow_everyone))


def check_authorizer(settings: BrokerSettings) -> None:
    """Check all settings of the authorizer.

    Raises:
        InvalidConfig: There is no such authorizer, or a value is wrong.
    """
    name = settings.authorizer_class_name
    if name != STANDARD_AUTHORIZER:
        raise InvalidConfig("authorizer.class.name", name, f"{STANDARD_AUTHORIZER}, or nothing")
    authorizer_settings(settings)
