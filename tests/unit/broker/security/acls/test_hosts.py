"""Which clients an ACL is for, by its host."""

import pytest

from broker.security.acls.hosts import Host, range_of


@pytest.mark.parametrize(
    ("host", "acl_host", "is_meant"),
    [
        ("10.0.0.7", "*", True),
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.7", "10.0.0.70", False),
        ("10.0.0.7", "10.0.0.0/29", True),
        ("10.0.0.7", "10.0.0.9/29", False),
        ("10.0.0.0", "10.0.0.0/29", True),  # first and last address of a range are in it
        ("10.0.0.7", "10.0.0.3/29", True),  # bits behind the prefix say nothing
        ("10.0.0.7", "0.0.0.0/0", True),
        ("10.0.0.7", "::/0", False),
        ("10.0.0.7", "10.0.0.0/33", False),
        ("10.0.0.7", "10.0.0.0/255.0.0.0", False),
        ("10.0.0.7", "broker.example", False),
        ("2001:db8::7", "2001:db8::/32", True),
        ("2001:db8::7", "0.0.0.0/0", False),
        ("2001:db8::7", "2001:0db8:0:0:0:0:0:7", True),
        ("fe80::7%eth0", "fe80::7", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
    ],
)
def test_an_acl_is_for_its_host(host: str, acl_host: str, is_meant: bool) -> None:
    assert Host(host).is_meant_by(acl_host) is is_meant


@pytest.mark.parametrize(
    "text", ["10.0.0.0/", "/8", "10.0.0/8", "256.0.0.0/8", "x/8", "10.0.0.0/8/8", "10.0.0.0/-1", "10.0.0.0/٨"]
)
def test_what_is_no_range_of_hosts(text: str) -> None:
    assert range_of(text) is None
