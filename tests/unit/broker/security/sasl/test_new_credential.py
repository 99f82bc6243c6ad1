"""`--add-scram`: the users that a new data directory has."""

import base64
import os

import pytest

from broker.security.sasl.new_credential import read_credential
from broker.security.sasl.scram import Credential, ScramHash
from config.errors import SettingsError
from protocol.records.cluster_metadata import UserScramCredentialRecord
from tests.support.scram_client import credential_of


def read(text: str) -> UserScramCredentialRecord:
    return read_credential(text, os.urandom)


def kept(record: UserScramCredentialRecord) -> Credential:
    return Credential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations)


@pytest.mark.parametrize("hash_", list(ScramHash))
def test_a_password_is_salted_and_hashed(hash_: ScramHash) -> None:
    record = read(f"{hash_.value}=[name=alice,password=wonder]")
    assert (record.name, record.mechanism) == ("alice", 1 if hash_ is ScramHash.SHA_256 else 2)
    assert kept(record) == credential_of("wonder", hash_, salt=bytes(record.salt))
    assert read(f"{hash_.value}=[name=alice,password=wonder]").salt != record.salt


def test_salt_and_iterations_may_be_given_and_values_quoted() -> None:
    salt = base64.b64encode(b"a salt").decode()
    record = read(f'SCRAM-SHA-256=[name="al,ice",iterations=8192,password="won,der=",salt="{salt}"]')
    assert record.name == "al,ice"
    assert kept(record) == credential_of("won,der=", ScramHash.SHA_256, salt=b"a salt", iterations=8192)


def test_a_salted_password_is_taken_as_it_is() -> None:
    """The example of RFC 7677."""
    salted = "xKSVEDI6tPlSysH6mUQZOeeOp01r6B3fcJbodRPcYV0="
    record = read(f'SCRAM-SHA-256=[name=user,saltedpassword="{salted}",salt="W22ZaJ0SNY7soEsUEjb6gQ=="]')
    assert base64.b64encode(bytes(record.stored_key)) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(bytes(record.server_key)) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SCRAM-SHA-1=[name=a,password=geheim]",
        "SCRAM-SHA-256=name=a,password=geheim",
        "SCRAM-SHA-256=[name=a,password=geheim",
        "SCRAM-SHA-256=[password=geheim]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,pasword=geheim]",
        "SCRAM-SHA-256=[name=a,password=geheim,password=geheim]",
        "SCRAM-SHA-256=[name=a,password=geheim,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=geheim,iterations=16385]",
        "SCRAM-SHA-256=[name=a,password=geheim,iterations=many]",
        "SCRAM-SHA-256=[name=a,password=geheim,salt=!]",
        "SCRAM-SHA-256=[name=a,saltedpassword=geheim]",
        'SCRAM-SHA-256=[name=a,password=geheim,saltedpassword="AAAA",salt="AAAA"]',
    ],
)
def test_what_is_not_of_the_form_is_refused_without_the_password(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^--add-scram ") as refused:
        read(text)
    assert "geheim" not in str(refused.value)
