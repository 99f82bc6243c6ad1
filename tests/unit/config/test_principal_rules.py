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
        # A comma separates rules. What an end of line alone separates from the next rule is passed over.
        ("RULE:^OU=(.*)$/$1/\nDEFAULT", SERVICE, SERVICE),
        ("DEFAULT\nRULE:^CN=(.*?),.*$/$1/", SERVICE, "kafka-server1"),
        (r"RULE:^CN=(.*?)\/(.*)$/$2\/$1/", "CN=a/b", "b/a"),
        ("RULE:^CN=(?<who>.*?),.*$/$1/", SERVICE, "kafka-server1"),
        ("RULE:^OU=(.*)$/$1/", SERVICE, None),
        # A name with a comma keeps its backslash.
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Tkac\, Adam,OU=ITZ,DC=cz", r"Tkac\, Adam"),
        # Java's patterns.
        (r"RULE:^CN=([\w&&[^\d]]+)\d?,.*$/$1/", SERVICE, None),
        (r"RULE:^CN=([\w-&&[^\d]]+)\d?,.*$/$1/", SERVICE, "kafka-server"),
        (r"RULE:^CN=(\p{Lower}++)-.*$/$1/", SERVICE, "kafka"),
        (r"RULE:^CN=(?>[a-z]+)a.*$/x/", SERVICE, None),
        (r"RULE:(?i)^cn=(?<who>.*?),.*$/${who}/", SERVICE, "kafka-server1"),
        (r"RULE:^CN=\Qkafka-\E(.*?),.*$/$1/", SERVICE, "server1"),
        (r"RULE:^CN=(\w+).*$/$1/", "CN=J\xe4ger,O=x", "J"),
        (r"RULE:^CN=(\p{L}+),.*$/$1/U", "CN=J\xe4ger,O=x", "J\xc4GER"),
        (r"RULE:^CN=([\p{IsGreek}]+)$/$1/L", "CN=\u03a3\u0391\u03a3", "\u03c3\u03b1\u03c2"),
        (r"RULE:.*(?<=CN=|OU=)KAFKA.*/broker/", SERVICE, "broker"),
        (r"RULE:.*(?<=[=,]{1,20})KAFKA.*/broker/", SERVICE, "broker"),
        (r"RULE:^(?x) CN= (.*?) , .* $ # the name/$1/", SERVICE, "kafka-server1"),
        # Java's replacements: of the digits as many count as name a group, and every match is replaced.
        ("RULE:^CN=(.*?),.*$/$12/", SERVICE, "kafka-server12"),
        (r"RULE:^CN=(.*?),.*$/\$1\\/", SERVICE, "$1\\"),
        ("RULE:.*/x/", "CN=a", "xx"),
        ("RULE:|./-/", "a", "-a-"),
    ],
)
def test_the_first_rule_that_matches_names_the_user(rules: str, subject: str, name: str | None) -> None:
    assert name_of(subject, parse_rules(rules)) == name


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("RULE:^CN=(.*?),.*$/$1", "'RULE:^CN=(.*?)' is no rule"),
        ("RULE:^CN=(.*?)$/$1/X", "'RULE:^CN=(.*?)$/$1/X' is no rule"),
        ("DEFAULTS", "'DEFAULTS' is no rule"),
        ("DEFAULT,nonsense", "'nonsense' is no rule"),
        (",", "there is no rule"),
        ("", "there is no rule"),
        ("RULE:^CN=(.*$/$1/", "the pattern '^CN=(.*$' of a rule cannot be used: a parenthesis is not closed"),
        ("RULE:[a/$1/", "a class of characters is not closed"),
        (r"RULE:\y/x/", r"\y is no escape"),
        (r"RULE:\p{IsKlingon}/x/", r"\p{IsKlingon} is no set of characters that is known here"),
        (r"RULE:\p{IsAlphabetic}/x/", r"\p{IsAlphabetic} is no set of characters that is known here"),
        (r"RULE:\X/x/", r"\X is not supported here"),
        ("RULE:(?U)a/x/", "the flag U is not supported here"),
        ("RULE:(?<=a*)b/x/", "in a look-behind is not supported there: its length may be any"),
        ("RULE:(?<=(?:a|bc){0,20})c/x/", "a look-behind has too many lengths"),
        (r"RULE:(a\1)/x/", "a reference to group 1 stands before the end of that group"),
        ("RULE:a{2,1}/x/", "{2,1} is no range"),
        ("RULE:(.*)/$/", "the replacement '$' of a rule has '$', which stands for no group"),
        ("RULE:.*/$1/", "the replacement '$1' of a rule has '$1', and there is no such group"),
        ("RULE:(.*)/${who}/", "the replacement '${who}' of a rule has '${who}', and there is no such group"),
    ],
)
def test_what_is_no_rule_or_has_no_translation_is_refused(rules: str, reason: str) -> None:
    with pytest.raises(InvalidRules) as refused:
        parse_rules(rules)
    assert reason in str(refused.value)
