"""Command line options for a broker's settings, shared by the broker and the tools that read its settings."""

import argparse
import os

from config.errors import SettingsError
from config.parse import LoadedSettings, load_settings
from config.release_versions import KEY as RELEASE_VERSION


def add_settings_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to ``parser``; `settings_of` reads the parsed options."""
    parser.add_argument("--config", metavar="FILE", help="settings: YAML, or a Kafka server.properties")
    parser.add_argument(
        "-o", dest="override", metavar="KEY=VALUE", action="append", default=[], help="one setting; may be repeated"
    )
    parser.add_argument(
        "--container",
        action="store_true",
        help="settings from KAFKA_… variables and a mounted server.properties too, as Apache Kafka's image takes them",
    )


def add_release_version_option(parser: argparse.ArgumentParser) -> None:
    """Add `--release-version`, which is the same as its setting."""
    parser.add_argument(
        "--release-version",
        dest="override",
        metavar="VERSION",
        action="append",
        type=lambda text: f"{RELEASE_VERSION}={text}",
        help="Kafka's release whose feature levels a new data directory gets, such as 4.3; default: the newest",
    )


def settings_of(options: argparse.Namespace) -> LoadedSettings:
    """Load the settings that the command line options name. Raises SettingsError."""
    overrides = [_override(text) for text in options.override]
    if options.container:
        from config.container import load_container_settings

        return load_container_settings(options.config, overrides, os.environ)
    return load_settings(options.config, overrides)


def _override(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise SettingsError(f"-o {text} is no setting, expected key=value")
    return key.strip(), value.strip()
