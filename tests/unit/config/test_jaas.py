"""JAAS configurations as Kafka's settings have them."""

import pytest

from config.jaas import InvalidJaas, LoginModule, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required user_alice="wonder";', {"user_alice": "wonder"}),
        (f"{PLAIN} required user_alice='won\"der' ;", {"user_alice": 'won"der'}),
        (f"{PLAIN} REQUIRED user_alice=wonder user_bob=build;", {"user_alice": "wonder", "user_bob": "build"}),
        (
            f'{PLAIN} required\n  user_alice = "a=b;c"  // her password\n  /* none\n for bob */;',
            {"user_alice": "a=b;c"},
        ),
        (f'{PLAIN} required user_alice="a\\"b\\\\c\\td";', {"user_alice": 'a"b\\c\td'}),
        (f'{PLAIN} required user_alice="";', {"user_alice": ""}),
        (f"{PLAIN} required;", {}),
        (f"'{PLAIN}' \"required\";", {}),
        (rf'{PLAIN} required user_a="pa\123x\7\477";', {"user_a": "paSx\a'7"}),
        (rf'{PLAIN} required user_a="\a\b\f\n\r\t\v\q\\";', {"user_a": "\a\b\f\n\r\t\vq\\"}),
        (f"{PLAIN} required user_a=a-b.c_$9 user_b=\xe4\u20ac;", {"user_a": "a-b.c_$9", "user_b": "\xe4\u20ac"}),
        (f'{PLAIN} required user_a="one\n;', {"user_a": "one"}),
        (f"{PLAIN} required user_a=one/two\n;", {"user_a": "one"}),
        (f"{PLAIN} required user_a=one user_a=two;", {"user_a": "two"}),
        (f"{PLAIN} required 5=one;", {}),
    ],
)
def test_a_login_module_has_options(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == LoginModule(PLAIN, options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it has 0 login modules, expected one"),
        (";", "it does not begin with the class of a login module and one of required,"),
        (f"{PLAIN};", "it does not begin with the class"),
        (f"{PLAIN} needed;", "it does not begin with the class"),
        (f"= {PLAIN} required;", "it does not begin with the class"),
        (f'{PLAIN} required user_alice="geheim"', "it does not end with a semicolon"),
        (f'{PLAIN} required user_alice="geheim;', "it does not end with a semicolon"),
        (f'{PLAIN} required user_alice "geheim";', "its option 1 is not of the form name=value"),
        (f"{PLAIN} required user_alice=geheim user_bob=;", "its option 2 is not of the form name=value"),
        (f"{PLAIN} required user_alice=geheim#12;", "its option 2 is not of the form name=value"),
        (f"{PLAIN} required user_alice=12geheim;", "its option 1 is not of the form name=value"),
        (f"{PLAIN} required; {PLAIN} required;", "it has 2 login modules, expected one"),
    ],
)
def test_what_is_no_configuration_is_refused_without_its_passwords(text: str, reason: str) -> None:
    with pytest.raises(InvalidJaas) as refused:
        parse_jaas(text)
    assert str(refused.value).startswith(reason)
    assert "geheim" not in str(refused.value)
