"""`ssl.principal.mapping.rules`: what Kafka's own tests and documentation say of them."""

import pytest

from config.principal_rules import InvalidRules, name_of, parse_rules

SERVICE = "CN=kafka-server1,OU=KAFKA,O=unknown,L=unknown"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", SERVICE, SERVICE),
        ("RULE:^CN=(.*?),.*$/$1/", SERVICE, "kafka-server1"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", SERVICE, "kafka-server1@KAFKA"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L", SERVICE, "kafka-server1@kafka"),
        ("RULE:^CN=(.*?),.*$/$1/U", SERVICE, "KAFKA-SERVER1"),
        ("RULE:^CN=(.*?),OU=(.*?)$/$1@$3/", "CN=a,OU=b", "a@$3"),
        ("RULE:^OU=(.*)$/$1/, RULE:^CN=([^,]*),.*$/$1/L, DEFAULT", SERVICE, "kafka-server1"),
        ("RULE:^OU=(.*)$/$1/,DEFAULT", SERVICE, SERVICE),
        ("RULE:^OU=(.*)$/$1/\nDEFAULT", SERVICE, SERVICE),
        (r"RULE:^CN=(.*?)\/(.*)$/$2\/$1/", "CN=a/b", "b/a"),
        ("RULE:^CN=(?<who>.*?),.*$/$1/", SERVICE, "kafka-server1"),
        ("RULE:^OU=(.*)$/$1/", SERVICE, None),
    ],
)
def test_the_first_rule_that_matches_names_the_user(rules: str, subject: str, name: str | None) -> None:
    assert name_of(subject, parse_rules(rules)) == name


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("RULE:^CN=(.*?),.*$/$1", "no rule begins with"),
        ("RULE:^CN=(.*?),.*$/$1/X", "no rule begins with"),
        ("DEFAULTS", "no rule begins with 'DEFAULTS'"),
        ("DEFAULT,nonsense", "no rule begins with 'nonsense'"),
        ("RULE:^CN=(.*$/$1/", "is no pattern"),
        (",", "there is no rule"),
    ],
)
def test_what_is_no_rule_is_refused(rules: str, reason: str) -> None:
    with pytest.raises(InvalidRules, match=reason):
        parse_rules(rules)
