"""Texts that say who somebody is, made by chance, and what Apache Kafka and Java read in them.

`python -m tests.parity.texts` asks `KafkaTexts.java` and writes the answers down, a question and its answer a line.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from broker.security.tls.der import MalformedDer
from broker.security.tls.distinguished_name import rfc2253
from config.jaas import InvalidJaas, parse_jaas
from config.principal_rules import InvalidRules, name_of, parse_rules
from dev.kafka_jars import NoKafka, libraries

RECORDED: Final = Path(__file__).parent / "recorded" / "texts.jsonl"
NONE, REFUSED, FAILS = "none", "refused", "fails"

SUBJECTS: Final = (
    "CN=alice,O=Acme",
    r"CN=Tkac\, Adam,OU=ITZ,DC=cz",
    "CN=kafka-server1,OU=KAFKA,O=unknown,L=unknown",
    "CN=ä€ß,STREET=s",
    "CN=a\nb,OU=x\r\ny",
    "",
    "CN=",
    r"CN=x\=y\#z\;\<\>\+,OU=ab+O=c",
    "1.2.840.113549.1.9.1=#16056140622e63,CN=z",
    "OU=aaab,CN=\u0130\u0131\u017fK",
    "CN=a\u2028b\u0085",
    "CN=Σας σας,O=e\u0301x\u0660",
    "cn=Admin , ou=QA\n",
)
_ATOMS: Final = (
    *("a", "b", "C", "=", ",", "x", "1", "_", " ", "-", "CN", "OU=", "O=", ".", "é", "€", "]", "}", "&", "^", "$"),
    *(r"\w", r"\d", r"\s", r"\S", r"\W", r"\D", r"\h", r"\H", r"\v", r"\V", r"\R", r"\t", r"\e", r"\a", r"\b", r"\B"),
    *(r"\A", r"\z", r"\Z", r"\x41", r"\x{e4}", r"\u0041", r"\0101", r"\07", r"\cA", r"\Qa.b\E", r"\Q,\E", r"\."),
    *(r"\\", r"\,", r"\+", r"\/", r"\N{LATIN SMALL LETTER A}", r"\p{L}", r"\p{Lu}", r"\p{Alpha}", r"\P{Alnum}", r"\pL"),
    *(r"\p{IsLatin}", r"\p{Punct}", r"\p{javaLowerCase}", r"\p{IsUppercase}", r"[\p{L}&&[^\p{Lu}]]", r"[\d\-x]"),
    *("[^,]", "[a-z]", "[A-Z0-9]", "[a-z&&[^b]]", "[a-c[x-z]]", "[^a[b]]", r"[\w&&[^\d]]", "[]a]", "[a&&b]", "[&&a]"),
    *("[a&]", "[a-]", "[-a]", r"[^\]]", "[a&&[a-z]c]", "[ab&&bc&&cd]", "[a-z&&[def]&&[^e]]", "[[a][^b]]", r"[a-\d]"),
    *("[.]", "[$^]", r"[\x41-\x43]", r"[\v]", "[a-z&&]", "[^^]"),
)
_BROKEN: Final = ("{", "{2}", "*", "(", ")", "[", "\\", r"\E", r"\Q", "|", "(?", r"\y", "{1", "{2,1}", "?", "(?#x)")
_QUANTIFIERS: Final = ("*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{1,2}?", "*+", "++", "?+", "{0}", "**")
_BOUNDED_QUANTIFIERS: Final = ("?", "??", "{2}", "{0,2}", "{1,2}?", "?+", "{0}")
_GROUPS: Final = ("(", "(", "(", "(?:", "(?<n0>", "(?<n1>", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?s:", "(?x:")
_FLAGS: Final = ("(?i)", "(?s)", "(?m)", "(?x)", "(?d)", "(?im)", "(?i-s)", "(?-i)")
_REFERENCES: Final = (r"\1", r"\2", r"\k<n0>", r"\11")
_REPLACEMENTS: Final = (
    *("$1", "$1", "$2", "$0", "$3", "$9", "$12", "x", r"\$", r"\/", "${n0}", "${n1}", "@", r"\\", "$", r"\n", "$01"),
    "€",
)
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_CHARACTERS_OF_A_PASSWORD: Final = (
    *("a", "7", "é", "€", " ", "//", "/*", "*/", ";", "=", "#", "$", "'", '"', r"\\", r"\"", r"\'", r"\1", r"\12"),
    *(r"\123", r"\477", r"\8", r"\t", r"\b", r"\n", r"\v", r"\a", r"\f", r"\q", r"\0", r"\u0041", r"\377", "\n", "\r"),
    "\\\n",
)
_CHARACTERS_OF_A_WORD: Final = ("a", "B", "_", "$", "1", ".", "-", "é", "€", "#", "\x7f", "\x80", "\xa0", "!", "/")
_GAPS: Final = ("\n", "\t", "\r\n", " /* c */ ", " // c\n", " / x\n", "/\n a\n", "", "\x0b", "\xa0", " /*/ */ ", " # ")
_KINDS_OF_ATTRIBUTES: Final = (
    *("550403", "550406", "550407", "550408", "550409", "55040a", "55040b", "0992268993f22c640101"),
    *("0992268993f22c640119", "550461", "2a864886f70d010901", "550405", "2a8648", "883703"),
)
_TAGS: Final = (0x0C, 0x0C, 0x0C, 0x13, 0x13, 0x14, 0x16, 0x1B, 0x1E, 0x12, 0x1A, 0x1C, 0x02, 0x03, 0x30)
_TEXTS_OF_ATTRIBUTES: Final = (
    *("a", " a", "a ", "  ", "", "#a", "a#", ",", "+", '"', "\\", "<>;=", "ä", "€", "a\nb", "\0", "\r", "A-z 0'():?/."),
    "\U0001f600",
)


class Question(NamedTuple):
    """Something to read: of ``kind`` rules, jaas or subject, in the order of `KafkaTexts.java`."""

    kind: str
    texts: tuple[str, ...]

    def line(self) -> str:
        """For `KafkaTexts.java`."""
        return " ".join([self.kind, *(self.texts if self.kind == "subject" else map(_encoded, self.texts))])


def questions(chance: random.Random, number: int) -> Iterator[Question]:
    """So many questions of each kind."""
    for _ in range(number):
        yield Question("rules", (_rules(chance), chance.choice(SUBJECTS)))
        yield Question("jaas", (_jaas(chance),))
        yield Question("subject", (_subject(chance).hex(),))


def kafkas_answers(asked: list[Question], jars: str) -> list[str]:
    """What Kafka and Java read."""
    command = ["java", "-Xmx256M", "-Xss4M", "-Dlog4j2.level=OFF", "-cp", f"{jars}/*"]
    command.append(str(Path(__file__).with_name("KafkaTexts.java")))
    lines = "\n".join(question.line() for question in asked)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=300)
    return [answer for line in done.stdout.splitlines() if (answer := _answer(line)) is not None]


def our_answer(question: Question) -> str:
    """What we read."""
    text = question.texts[0]
    try:
        if question.kind == "rules":
            name = name_of(question.texts[1], parse_rules(text))
            return NONE if name is None else json.dumps([name])
        if question.kind == "jaas":
            module = parse_jaas(text)
            return json.dumps([module.name, *(part for option in sorted(module.options.items()) for part in option)])
        return json.dumps([rfc2253(bytes.fromhex(text))])
    except (InvalidRules, InvalidJaas):
        return REFUSED
    except MalformedDer:
        return FAILS


def recorded() -> list[tuple[Question, str]]:
    """The questions that Kafka was asked, and its answers."""
    rows = map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())
    return [(Question(kind, tuple(texts)), answer) for kind, *texts, answer in rows]


def _answer(line: str) -> str | None:
    word, *texts = line.split(" ")
    if word != "=":
        return word if word in (NONE, REFUSED, FAILS) else None
    return json.dumps([base64.b64decode(text).decode() for text in texts])


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# Mapping rules


def _rules(chance: random.Random) -> str:
    number = chance.choice((1, 1, 1, 1, 2, 3))
    rules = [_rule(chance) if chance.random() < 0.9 else chance.choice(("DEFAULT", "", "junk")) for _ in range(number)]
    return chance.choice((",", ", ", " ,", "\n", ",\n")).join(rules)


def _rule(chance: random.Random) -> str:
    core = _alternatives(chance, 0).replace("/", r"\/").replace(r"\\/", r"\/")
    around = chance.choice(("^.*?{}.*$", "^CN=(.*?){}(,.*)?$", ".*{}.*", "(?s).*{}(.*)", "{}"))
    replacement = "".join(chance.choices(_REPLACEMENTS, k=chance.randrange(4)))
    return f"RULE:{around.replace('{}', core)}/{replacement}/{chance.choice(('', '', 'L', 'U'))}"


def _alternatives(chance: random.Random, depth: int) -> str:
    return "|".join(_sequence(chance, depth) for _ in range(chance.choice((1, 1, 1, 2, 3))))


def _sequence(chance: random.Random, depth: int) -> str:
    return "".join(_node(chance, depth) for _ in range(chance.randrange(3) if depth else chance.randrange(1, 4)))


def _node(chance: random.Random, depth: int) -> str:
    number = chance.random()
    if number < 0.55 or depth > 3:
        node = chance.choice(_ATOMS)
    elif number < 0.9:
        node = chance.choice(_GROUPS) + _alternatives(chance, depth + 1) + ")"
    else:
        node = chance.choice(_FLAGS if number < 0.93 else _REFERENCES if number < 0.99 else _BROKEN)
    # What repeats without a bound is not repeated without a bound again: Python would try all ways to do so.
    quantifiers = _QUANTIFIERS if len(node) < 3 or not set(node) & set("*+,") else _BOUNDED_QUANTIFIERS
    return node + (chance.choice(quantifiers) if chance.random() < 0.3 else "")


# JAAS lines


def _jaas(chance: random.Random) -> str:
    is_odd = chance.random() < 0.4

    def gap() -> str:
        return chance.choice(_GAPS) if is_odd and chance.random() < 0.3 else " "

    def value() -> str:
        if chance.random() < 0.3:
            return word()
        quote = chance.choice('""\'')
        return quote + "".join(chance.choices(_CHARACTERS_OF_A_PASSWORD, k=chance.randrange(7))) + quote

    def word() -> str:
        return "".join(chance.choices(_CHARACTERS_OF_A_WORD[: None if is_odd else 6], k=chance.randrange(1, 5)))

    name = chance.choice((_PLAIN, value(), "")) if is_odd else _PLAIN
    line = name + gap() + (chance.choice(("Required", "optional", '"required"', "needed")) if is_odd else "required")
    for _ in range(chance.randrange(4)):
        key = chance.choice((word(), value(), "=", ";", "5", "user_bob")) if is_odd else f"user_{word()}"
        line += f"{gap()}{key}{chance.choice(('=', ' = ', '=', '=='))}{value()}" if is_odd else f" {key}={value()}"
    return line + (chance.choice((";", "", "; ", ";;", f"; {_PLAIN} required;")) if is_odd else ";")


# Subjects of certificates


def _subject(chance: random.Random) -> bytes:
    parts = (_tagged(0x31, b"".join(_attributes(chance))) for _ in range(chance.randrange(4)))
    return _tagged(0x30, b"".join(parts))


def _attributes(chance: random.Random) -> list[bytes]:
    return [_attribute(chance) for _ in range(chance.choice((1, 1, 1, 2, 3)))]


def _attribute(chance: random.Random) -> bytes:
    kind, tag = bytes.fromhex(chance.choice(_KINDS_OF_ATTRIBUTES)), chance.choice(_TAGS)
    text = "".join(chance.choices(_TEXTS_OF_ATTRIBUTES, k=chance.randrange(4)))
    content = text.encode({0x1E: "utf-16-be", 0x1C: "utf-32-be"}.get(tag, chance.choice(("utf-8", "utf-8", "utf-16"))))
    if tag == 0x02:
        content = b"\x05"
    elif tag == 0x03:
        content = b"\0" + content
    elif tag == 0x30:
        content = _tagged(0x13, b"a")
    return _tagged(0x30, _tagged(0x06, kind) + _tagged(tag, content))


def _tagged(tag: int, content: bytes) -> bytes:
    length = len(content)
    size = bytes([length]) if length < 0x80 else bytes([0x82, length >> 8, length & 0xFF])
    return bytes([tag]) + size + content


def main() -> None:
    """Ask Kafka, and write the answers down."""
    try:
        jars = str(libraries())
    except NoKafka as reason:
        raise SystemExit(f"Nothing is recorded: {reason}.") from None
    asked = list(questions(random.Random(0), 250))
    answers = kafkas_answers(asked, jars)
    rows = ([one.kind, *one.texts, answer] for one, answer in zip(asked, answers, strict=True))
    RECORDED.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sys.stderr.write(f"{len(asked)} answers in {RECORDED}\n")


if __name__ == "__main__":
    main()
