"""Subjects as text: what `javax.security.auth.x500.X500Principal.getName` of Java 17 printed for these bytes."""

import pytest

from broker.security.tls.der import MalformedDer
from broker.security.tls.distinguished_name import rfc2253

JAVA = {
    "3056310b3009060355040613024445310a30080603550408130159310a3008060355040713015831133011060355040a130a41636d652c20496e"
    "632e310c300a060355040b1303456e67310c300a06035504031303612062": r"CN=a b,OU=Eng,O=Acme\, Inc.,L=X,ST=Y,C=DE",
    "301e310b3009060355040a0c022368310f300d06035504031306206c65616420": r"CN=\ lead\ ,O=\#h",
    "302e31133011060a0992268993f22c6401191603636f6d31173015060a0992268993f22c64011916076578616d706c65": (
        "DC=example,DC=com"
    ),
    "301f310a300806035504031301633111300f060a0992268993f22c640101130175": "UID=u,CN=c",
    "3022310a3008060355040313017a3114301206092a864886f70d01090116056140622e63": (
        "1.2.840.113549.1.9.1=#16056140622e63,CN=z"
    ),
    "301c310a30080603550409130173310e300c06035504030c05c3a4e282ac": "CN=ä€,STREET=s",
    "3022310a3008060355040a1301633114300806035504031301613008060355040b130162": "CN=a+OU=b,O=c",
    "301a310a30080603550403130171310c300a06035504611303666f6f": "2.5.4.97=#1303666f6f,CN=q",
    "300e310c300a06035504030c03610a62": "CN=a\nb",
    "300b3109300706035504031300": "CN=",
    "300e310c300a060355040a0c03615c62": r"O=a\\b",
    "300f310d300b0603550403130461202062": "CN=a  b",
    "30143112301006035504030c09783d79237a3b3c3e2b": r"CN=x\=y\#z\;\<\>\+",
    "300e310c300a06035504030c03712271": r"CN=q\"q",
}


@pytest.mark.parametrize(("encoded", "text"), JAVA.items())
def test_a_subject_has_the_name_that_it_has_in_java(encoded: str, text: str) -> None:
    assert rfc2253(bytes.fromhex(encoded)) == text


def test_what_is_cut_is_no_name() -> None:
    for encoded in JAVA:
        whole = bytes.fromhex(encoded)
        for end in range(len(whole)):
            with pytest.raises(MalformedDer):
                rfc2253(whole[:end])
