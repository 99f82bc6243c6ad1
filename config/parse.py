"""Settings from a file and the command line: every name and value checked, and one object made of them.

A later source wins over an earlier one, key by key. Names that stand for the same thing (broker.id and node.id, log.dir
and log.dirs) are made one before sources are laid over each other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from config.broker_settings import BROKER_SETTINGS, BrokerSettings
from config.consistency import check_together
from config.declared import field_name
from config.definitions import broker_definition, definitions, nearest_name
from config.dynamic import LISTENER_LIMITS, LISTENER_PREFIX
from config.errors import InvalidConfig, SettingsError, UnknownConfig
from config.listeners import (
    DEFAULT_SECURITY_PROTOCOL_MAP,
    Listener,
    advertise,
    check_ports_differ,
    machine_name,
    parse_listeners,
    parse_protocol_map,
)
from config.our_defaults import KAFKAS_ON_A_MEMBER
from config.quorum import check_roles
from config.refusals import check_security_value, is_sasl_key, is_security_key, refused_sentence
from config.similar import most_similar
from config.values import ConfigType, parse_value, read_value, trimmed

_PARSED_WITH_OTHERS: Final = ("listeners", "advertised.listeners")
_ONE_NODE: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)
_KNOWN_ELSEWHERE: Final = ("allow.everyone.if.no.acl.found", "super.users")
"""Settings that Kafka's broker does not define (`config.authorizer`): they say nothing where there is no authorizer."""
_NAMES_CONTROLLERS: Final = ("controller.quorum.bootstrap.servers", "controller.quorum.voters")
_PLUGIN_PREFIXES: Final = ("rlmm.config.", "rsm.config.", "config.providers.")


class LoadedSettings(NamedTuple):
    """The settings to start with, and notices about them for the log, one line each."""

    settings: BrokerSettings
    notices: list[str]


_PATHS: Final = frozenset({"cordoned.log.dirs", "log.dirs", "metadata.log.dir"})
"""Settings that name directories, whose names may be any bytes."""


def load_settings(
    path: str | None, overrides: Sequence[tuple[str, str]] = (), host_name: Callable[[], str] = machine_name
) -> LoadedSettings:
    """Read, check and combine the settings of a file and of the command line.

    Args:
        path: A YAML or Java properties file; None for none.
        overrides: Names and texts that win over the file; of equal names the last.
        host_name: This machine's name, advertised where a listener binds every interface and none is advertised.

    Raises:
        SettingsError: A file cannot be read, a name does not exist, a value is wrong or is not supported here, or two
            values contradict each other. Its text is one sentence.
    """
    sources = [dict(overrides)]
    if path is not None:
        from config.sources import read_settings_file  # YAML costs 20 ms, and many starts have no file

        sources.insert(0, read_settings_file(path))
    return combine_settings(sources, host_name)


def combine_settings(
    sources: Iterable[Mapping[str, str]], host_name: Callable[[], str] = machine_name
) -> LoadedSettings:
    """Check and combine texts by name, of which a later source wins over an earlier one.

    Raises:
        SettingsError: As `load_settings` does.
    """
    texts: dict[str, str] = {}
    for source in sources:
        texts.update(_with_one_name(source))
    return _Loading(texts, host_name).load()


def is_setting(key: str) -> bool:
    """Whether a name is that of a setting of Kafka's or ours, with or without an effect here."""
    return (
        key in BROKER_SETTINGS
        or key in _KNOWN_ELSEWHERE
        or key.startswith((LISTENER_PREFIX, *_PLUGIN_PREFIXES))
        or broker_definition(key) is not None
    )


def _with_one_name(texts: Mapping[str, str]) -> dict[str, str]:
    """One source's texts with the old names replaced by the new ones."""
    texts = {trimmed(key): text for key, text in texts.items()}
    broker_id = texts.pop("broker.id", None)
    if broker_id is not None and read_value(ConfigType.INT, broker_id) != -1:
        node_id = texts.setdefault("node.id", broker_id)
        if read_value(ConfigType.INT, node_id) != read_value(ConfigType.INT, broker_id):
            raise SettingsError(
                f"node.id is '{node_id}' and broker.id is '{broker_id}', expected one of them, or both the same"
            )
    log_dir = texts.pop("log.dir", None)
    if log_dir is not None:
        texts.setdefault("log.dirs", log_dir)
    return texts


def _is_utf8(text: str) -> bool:
    return text.isascii() or text.isprintable() or not any("\ud800" <= character <= "\udfff" for character in text)


def _encodable(text: str) -> str:
    """The text as clients are shown it: bytes of a path that are no UTF-8 are escaped."""
    return text if _is_utf8(text) else text.encode("utf-8", "backslashreplace").decode()


def _check_class(setting: str, key: str, text: str) -> None:
    """Refuse a class that counts for every listener. Raises `SettingsError`."""
    from config.class_settings import Where, check_class  # most starts have no setting without an effect

    check_class(setting, key, text, Where.EVERY_START)


class _Loading:
    """The state of one pass over the texts: the settings that have been parsed so far."""

    def __init__(self, texts: dict[str, str], host_name: Callable[[], str]) -> None:
        self._texts = texts
        self._host_name = host_name
        self._notices: list[str] = []
        self._without_effect: list[str] = []
        self._is_member = False
        self._controller_names = tuple(name.upper() for name in self._parsed("controller.listener.names"))
        self._protocols = parse_protocol_map(
            trimmed(texts.get("listener.security.protocol.map", DEFAULT_SECURITY_PROTOCOL_MAP)), self._controller_names
        )

    def load(self) -> LoadedSettings:
        """Parse and check all settings; the order decides which error is reported first."""
        listener_keys = [key for key in self._texts if key.startswith(LISTENER_PREFIX)]
        for key, text in self._texts.items():
            if key not in _PATHS and not _is_utf8(text):
                raise SettingsError(f"{key} is {text!r}, whose bytes are no UTF-8: only paths may be so")
            if key not in BROKER_SETTINGS and key not in listener_keys:
                self._check_other_key(key)
        values = {field_name(key): self._parsed(key) for key in BROKER_SETTINGS if key not in _PARSED_WITH_OTHERS}
        check_roles(self._texts, values["process_roles"])
        self._is_member = "controller" not in values["process_roles"]
        if self._is_member:
            values |= self._defaults_of_members()
        listeners, controller_listeners = self._listeners()
        opened_controllers = tuple(one for one in controller_listeners if one.security_protocol == "PLAINTEXT")
        listeners = self._with_limits(listeners, listener_keys)
        settings = BrokerSettings(
            **values | ({} if self._is_member or opened_controllers else self._lowered_for_one_node(values)),
            listeners=listeners,
            advertised_listeners=self._advertised(listeners),
            controller_listeners=controller_listeners,
            advertised_controller_listeners=self._advertised_to_brokers(opened_controllers),
            given={key: _encodable(text) for key, text in self._texts.items()},
        )
        if "queued.max.request.bytes" not in self._texts:
            at_least = max(settings.queued_max_request_bytes, settings.socket_request_max_bytes)
            settings = settings.replace(queued_max_request_bytes=at_least)
        check_together(settings)
        if any(listener.has_sasl for listener in listeners):
            from config.sasl import check_sasl, has_effect  # most starts have no SASL

            check_sasl(settings)
            self._without_effect = [key for key in self._without_effect if not has_effect(key, settings)]
        if any(listener.has_tls for listener in listeners):
            from config.tls import check_tls  # most starts have no TLS

            check_tls(settings)
            self._without_effect = [key for key in self._without_effect if not self._is_of_tls(key)]
        if settings.authorizer_class_name:
            from config.authorizer import check_authorizer

            check_authorizer(settings)
            self._without_effect = [key for key in self._without_effect if key not in _KNOWN_ELSEWHERE]
        return LoadedSettings(settings, self._notices + self._last_notices(controller_listeners))

    def _parsed(self, key: str) -> Any:
        """The value of a setting that has an effect here: its parsed text, or the default."""
        declaration = BROKER_SETTINGS[key]
        text = self._texts.get(key)
        if text is None:
            return BrokerSettings.default_of(key)
        return declaration.parse(key, text)

    # Names without an effect here

    def _check_other_key(self, key: str) -> None:
        """Accept or refuse a setting of Kafka's that has no effect here.

        Raises:
            SettingsError: The name does not exist or not any more, its value is wrong, or it must not be passed over.
        """
        text = self._texts[key]
        if self._is_removed(key):
            return
        if key not in _KNOWN_ELSEWHERE and not key.startswith(_PLUGIN_PREFIXES):
            definition = broker_definition(key)
            if definition is None:
                raise self._unknown(key, key)
            if is_security_key(key):
                check_security_value(key, definition, text)
            else:
                parse_value(key, definition.type, definition.allowed, text)
            _check_class(key, key, text)
            if refused := refused_sentence(key, trimmed(text)):
                raise SettingsError(refused)
        self._without_effect.append(key)

    def _is_removed(self, key: str) -> bool:
        """Whether Kafka had the setting once; a notice says so. Raises `SettingsError` where another one is needed."""
        from config.removed_settings import removed, removed_sentence  # most files have no such name

        found, sentence = removed(key), removed_sentence(key)
        if found is None or sentence is None:
            return False
        if found.stops:
            raise SettingsError(sentence)
        self._notices.append(f"passed over: {sentence}")
        return True

    def _unknown(self, key: str, name: str) -> SettingsError:
        """The error for a key that does not exist; ``name`` is the key without a listener's prefix."""
        prefix = key.removesuffix(name)
        topic_setting = definitions("topic").get(name)
        if topic_setting is not None:
            hint = "".join(f", expected {one}, their default" for one in topic_setting.synonyms[:1])
            return SettingsError(f"{key} is a setting of single topics and says nothing of a broker{hint}")
        nearest = nearest_name(name, BROKER_SETTINGS)
        meant = broker_definition(nearest) if nearest else None
        is_secret = is_security_key(name) or (meant is not None and meant.is_sensitive)
        text = "(hidden)" if is_secret else self._texts[key]
        return UnknownConfig(key, text, prefix + nearest if nearest else None)

    # Listeners

    def _listeners(self) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
        """The listeners to open, and those of the controller."""
        text = self._texts.get("listeners")
        if text is None:
            default: tuple[Listener, ...] = self._parsed("listeners")
            return default, ()
        entries = parse_value("listeners", ConfigType.LIST, "", text)
        listeners = parse_listeners("listeners", entries, self._protocols)
        check_ports_differ(listeners)
        opened = tuple(listener for listener in listeners if listener.name not in self._controller_names)
        if not opened:
            raise InvalidConfig("listeners", text, "one that is not named in controller.listener.names, for clients")
        of_controller = tuple(listener for listener in listeners if listener not in opened)
        if of_controller and self._is_member:
            raise InvalidConfig(
                "listeners", text, "none that controller.listener.names has, as process.roles is broker alone"
            )
        return opened, of_controller

    def _said_of(self, *, controllers: bool) -> tuple[Listener, ...]:
        """What `advertised.listeners` says of the controller's listeners, or of the others."""
        entries = parse_value("advertised.listeners", ConfigType.LIST, "", self._texts.get("advertised.listeners", ""))
        said = parse_listeners("advertised.listeners", entries, self._protocols)
        return tuple(listener for listener in said if (listener.name in self._controller_names) == controllers)

    def _advertised_to_brokers(self, opened: tuple[Listener, ...]) -> tuple[Listener, ...]:
        """The address of each controller listener that is opened: as it is advertised, or as it is opened."""
        names = {listener.name for listener in opened}
        said = tuple(listener for listener in self._said_of(controllers=True) if listener.name in names)
        found = {one.name: one for one in advertise(opened, (), self._host_name)}
        if said:
            found |= {one.name: one for one in advertise(opened, said, self._host_name)}
        return tuple(found[listener.name] for listener in opened)

    def _advertised(self, listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
        said = self._said_of(controllers=False)
        advertised = advertise(listeners, said, self._host_name)
        guessed = [str(one) for one, given in zip(advertised, said or listeners, strict=True) if one != given]
        if guessed:
            self._notices.append(
                f"the advertised address is {', '.join(guessed)}, this machine's name; "
                "set advertised.listeners if clients reach it by another name"
            )
        return advertised

    def _with_limits(self, listeners: tuple[Listener, ...], keys: Iterable[str]) -> tuple[Listener, ...]:
        """The listeners with what ``listener.name.<name>.<setting>`` says about each of them."""
        limits: dict[str, dict[str, Any]] = {listener.name: {} for listener in listeners}
        for key in keys:
            name, _, setting = key.removeprefix(LISTENER_PREFIX).partition(".")
            self._check_listener_key(key, name, setting)
            is_opened = name.upper() in limits
            if is_opened and setting in LISTENER_LIMITS:
                limits[name.upper()][field_name(setting)] = BROKER_SETTINGS[setting].parse(key, self._texts[key])
            elif not is_opened or not self._secures(name, setting):
                self._without_effect.append(key)
        return tuple(listener._replace(**limits[listener.name]) for listener in listeners)

    def _secures(self, name: str, setting: str) -> bool:
        """Whether a setting of one listener is one of SASL or TLS, and the listener has what the setting is of."""
        protocol = self._protocols.get(name.upper(), "")
        if is_sasl_key(setting):
            return protocol.startswith("SASL_")
        return protocol.endswith("SSL") and self._is_of_tls(setting)

    def _is_of_tls(self, setting: str) -> bool:
        from config.tls import has_effect  # most starts have no TLS

        return has_effect(setting)

    def _check_listener_key(self, key: str, name: str, setting: str) -> None:
        known = {*self._protocols, *self._controller_names}
        if name.upper() not in known:
            nearest = most_similar(name, [one.lower() for one in known])
            hint = f"{LISTENER_PREFIX}{nearest}.{setting}" if nearest else None
            raise UnknownConfig(key, "(hidden)" if is_security_key(setting) else self._texts[key], hint)
        definition = broker_definition(setting)
        if is_sasl_key(setting):
            of_mechanism = definition or broker_definition(setting.partition(".")[2])
            if of_mechanism is None:
                raise UnknownConfig(key, "(hidden)", None)
            check_security_value(key, of_mechanism, self._texts[key])
        elif is_security_key(setting) and definition is not None:
            check_security_value(key, definition, self._texts[key])
        elif definition is None:
            raise self._unknown(key, setting)
        else:
            parse_value(key, definition.type, definition.allowed, self._texts[key])
            _check_class(setting, key, self._texts[key])

    # Members of a cluster, and single nodes

    def _defaults_of_members(self) -> dict[str, Any]:
        """Kafka's defaults of what is not given, where a single node has others."""
        return {
            field_name(key): BROKER_SETTINGS[key].parse(key, definitions("broker")[key].default or "")
            for key in KAFKAS_ON_A_MEMBER
            if key not in self._texts
        }

    def _lowered_for_one_node(self, values: Mapping[str, Any]) -> dict[str, int]:
        """Replication that one node cannot have, lowered to what it can."""
        too_many = [key for key in _ONE_NODE if values[field_name(key)] > 1]
        if too_many:
            said = ", ".join(f"{key}={values[field_name(key)]}" for key in too_many)
            self._notices.append(f"taken as 1, because there is one node: {said}")
        self._texts |= dict.fromkeys(too_many, "1")
        return dict.fromkeys(map(field_name, too_many), 1)

    def _last_notices(self, controller_listeners: tuple[Listener, ...]) -> list[str]:
        notices = []
        if secured := [str(one) for one in controller_listeners if one.security_protocol != "PLAINTEXT"]:
            notices.append(
                "kept but not opened, because brokers talk to each other without TLS and SASL here: "
                + ", ".join(secured)
            )
        named = [key for key in _NAMES_CONTROLLERS if self._texts.get(key)]
        if named and not self._is_member:
            notices.append(f"not asked, because this node is its own controller: {', '.join(named)}")
        if self._without_effect:
            notices.append(f"accepted without effect here: {', '.join(sorted(self._without_effect))}")
        return notices
