"""Settings files: YAML read as text, and Java properties read as Java reads them."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import SettingsError
from config.sources import read_properties, read_settings_file, read_yaml, split_override


def test_yaml_values_stay_the_texts_that_stand_there() -> None:
    texts = read_yaml(
        "a: 22:22\nb: on\nc: 0x1F\nd: 1_000\ne: 2026-11-20\nf: '1'\ng: PLAINTEXT://:9092,B://h:1\n", "s.yaml"
    )

    assert texts == {
        "a": "22:22",
        "b": "on",
        "c": "0x1F",
        "d": "1_000",
        "e": "2026-11-20",
        "f": "1",
        "g": "PLAINTEXT://:9092,B://h:1",
    }


def test_a_yaml_sequence_is_a_list() -> None:
    assert read_yaml("log.dirs: [/a, /b]\nlisteners:\n  - A://:1\n  - B://:2\n", "s.yaml") == {
        "log.dirs": "/a,/b",
        "listeners": "A://:1,B://:2",
    }


def test_a_yaml_key_without_a_value_is_not_set_but_an_empty_text_is_one() -> None:
    assert read_yaml("a:\nb: ~\nc: null\nd: ''\n", "s.yaml") == {"d": ""}


def test_an_empty_yaml_file_has_no_settings() -> None:
    assert read_yaml("# nothing\n", "s.yaml") == {}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("log: {dirs: x}", "log in line 1 of s.yaml holds settings of its own, expected a text or a list"),
        ("- a", "the settings file s.yaml holds no settings, expected lines such as 'node.id: 1'"),
        ("node.id: 1\n\nnode.id: 2", "node.id stands in lines 1 and 3 of s.yaml, expected it once"),
        ("a: [", "the settings file s.yaml is not YAML: "),
        ("[a]: 1", "line 1 of s.yaml begins with no name, expected a line such as 'node.id: 1'"),
    ],
)
def test_yaml_that_is_no_flat_list_of_settings_is_refused(content: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_yaml(content, "s.yaml")

    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("a=1", {"a": "1"}),
        ("a : 1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("   a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("# a=1\n  ! b=2\n\nc=3", {"c": "3"}),
        ("a=x=y:z w", {"a": "x=y:z w"}),
        ("a==1", {"a": "=1"}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=one,\\\n    two,\\\n  three", {"a": "one,two,three"}),
        ("a=one\\\n# two", {"a": "one# two"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a=one\\", {"a": "one"}),
        ("a=\\\n\nb=1", {"a": "", "b": "1"}),
        ("\\\na=1", {"a": "1"}),
        ("\\\n# a=1\n  \\\n\nb=1\n\\", {"b": "1"}),
        ("a\\ b\\=c=1", {"a b=c": "1"}),
        ("a=C:\\\\x\\t\\u00e9\\q", {"a": "C:\\x\t\N{LATIN SMALL LETTER E WITH ACUTE}q"}),
        ("a=\\uD83D\\uDE00", {"a": "\N{GRINNING FACE}"}),
        ("a=1 ", {"a": "1 "}),
    ],
)
def test_properties_are_read_as_java_reads_them(content: str, texts: dict[str, str]) -> None:
    assert read_properties(content, "p") == texts


def test_a_unicode_escape_that_is_cut_short_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"p has '\\u12', expected four hexadecimal digits"):
        read_properties("a=\\u12", "p")


@given(st.text())
def test_whatever_a_properties_file_holds_it_is_read_or_refused_in_a_sentence(content: str) -> None:
    try:
        texts = read_properties(content, "p")
    except SettingsError:
        return
    assert all(isinstance(text, str) for text in texts.values())


@given(st.binary())
def test_whatever_a_yaml_file_holds_it_is_read_or_refused_in_a_sentence(content: bytes) -> None:
    try:
        texts = read_yaml(content, "s.yaml")
    except SettingsError:
        return
    assert all(isinstance(text, str) for text in texts.values())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("s.yaml", "node.id: 7"),
        ("s.yml", "node.id: 7"),
        ("server.properties", "node.id: 7"),
        ("server.properties", "node.id=7"),
        ("settings", "# one\nnode.id=7"),
        ("settings", "node.id: 7"),
    ],
)
def test_the_kind_of_file_is_told_by_its_extension_or_its_content(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)

    assert read_settings_file(str(path)) == {"node.id": "7"}


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("server.properties", "node.id=7\r\n"),
        ("server.properties", "# our broker\r\nnode.id=7"),
        ("server.properties", "\r\n\r\nnode.id = 7\r\n"),
        ("SERVER.PROPERTIES", "node.id: 7"),
        ("s.yaml", "node.id: 7\r\n"),
        ("S.YML", "# our broker\r\nnode.id: 7\r\n"),
        ("settings", "node.id=7"),
        ("settings", "# our broker\r\nnode.id: 7"),
    ],
)
def test_a_file_may_begin_with_the_mark_of_an_editor_on_windows(
    tmp_path: Path, mark: str, name: str, content: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode(mark))

    assert read_settings_file(str(path)) == {"node.id": "7"}


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["server.properties", "s.yaml", "settings"])
def test_a_file_of_a_mark_alone_has_no_settings(tmp_path: Path, mark: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes("".encode(mark))

    assert read_settings_file(str(path)) == {}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("node.id=7\n".encode("utf-16-le"), "holds bytes of zero, expected a text file in Latin-1"),
        (b"node.id=7\n" + b"\0" * 20, "holds bytes of zero, expected a text file in Latin-1"),
        (b"\xff\xfen\0o\0d", "begins as UTF-16 and is none: truncated data"),
    ],
)
def test_a_properties_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(content)

    with pytest.raises(SettingsError) as refused:
        read_settings_file(str(path))

    assert str(refused.value) == f"the settings file {path} {sentence}"


@given(st.binary())
def test_whatever_bytes_a_settings_file_holds_it_is_read_or_refused_in_a_sentence(content: bytes) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory, "server.properties")
        path.write_bytes(content)
        try:
            texts = read_settings_file(str(path))
        except SettingsError:
            return
    assert all(isinstance(text, str) for text in texts.values())


def test_a_properties_file_is_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(b"log.dirs=/data/\xe9")

    assert read_settings_file(str(path)) == {"log.dirs": "/data/\N{LATIN SMALL LETTER E WITH ACUTE}"}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing.yaml"

    with pytest.raises(SettingsError) as refused:
        read_settings_file(str(path))

    assert str(refused.value) == f"the settings file {path} cannot be read: No such file or directory"


def test_an_override_is_split_at_its_first_equals_sign() -> None:
    assert split_override("log.dirs=/a=b") == ("log.dirs", "/a=b")
    assert split_override("broker.rack=") == ("broker.rack", "")


@pytest.mark.parametrize("argument", ["node.id", "=1"])
def test_an_override_without_name_or_equals_sign_is_refused(argument: str) -> None:
    with pytest.raises(SettingsError, match=rf"-o {argument} is not a setting, expected key=value"):
        split_override(argument)
