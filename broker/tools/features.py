"""`ottla features`: asks a running node, of Ottla's or of Kafka, for its feature levels, or raises them.

It does what `kafka-features describe` and `kafka-features upgrade --release-version` do, and needs no Java.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.peers.errors import PeerError, PeerUnreachable
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.peers.versions import NodeVersions
from broker.runtime.backoff import Backoff
from broker.runtime.clock import LoopClock
from broker.security.tls.key_material import Unusable
from broker.tools.login import LoginConnector
from broker.tools.output import run_until_output_closes
from config.client_login import read_client_login
from config.errors import InvalidConfig, SettingsError
from config.quorum import read_address
from config.release_versions import RELEASE_VERSIONS, ReleaseVersion, read_release_version
from protocol.errors import ErrorCode, described
from protocol.messages.features import UpdateFeaturesRequest, UpdateFeaturesResponse

DONE: Final = 0
REFUSED: Final = 1

TIMEOUT_MS: Final = 60_000

_DEFAULT_SERVER: Final = "localhost:9092"
_METADATA_VERSION: Final = "metadata.version"
_KRAFT_VERSION: Final = "kraft.version"
_VOTERS_SINCE: Final = 21
"""The metadata.version from which on a release version stands for kraft.version 1, too."""
_UPGRADE: Final = 1
_NO_LEVEL: Final = (0, 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ottla features`; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        connector = LoginConnector(read_client_login(options.command_config))
    except (SettingsError, Unusable) as error:
        return _failed(str(error))
    # What cannot be reached is the tool's own error.
    logging.getLogger("broker").addHandler(logging.NullHandler())
    ask = partial(_upgraded, version=options.release_version) if options.command == "upgrade" else _described
    try:
        lines = asyncio.run(_ask_one(options.bootstrap_server or _addresses(_DEFAULT_SERVER), connector, ask))
    except (PeerError, UpdateRefused) as error:
        return _failed(str(error))
    return run_until_output_closes(lambda: _print(lines))


class UpdateRefused(Exception):
    """The node does not raise the levels. The message is its own."""


async def _ask_one(
    addresses: Sequence[PeerEndpoint], connector: LoginConnector, ask: Callable[[Peer], Awaitable[list[str]]]
) -> list[str]:
    """Ask the first node that can be reached. Raises PeerError, UpdateRefused."""
    reasons = []
    for endpoint in addresses:
        peer = Peer(
            endpoint,
            client_id="ottla-features",
            connector=connector,
            clock=LoopClock(asyncio.get_running_loop(), time.time),
            backoff=Backoff(random.random),
            request_timeout_ms=TIMEOUT_MS,
            stats=PeerStats(),
        )
        try:
            return await ask(peer)
        except PeerUnreachable as error:
            reasons.append(str(error))
        finally:
            peer.close()
    raise PeerUnreachable("; ".join(reasons))


async def _described(peer: Peer) -> list[str]:
    """The lines of `kafka-features describe`."""
    return list(_feature_lines(await peer.versions()))


def _feature_lines(node: NodeVersions) -> Iterator[str]:
    epoch = node.finalized_features_epoch
    for name in sorted({*node.supported_features, *node.finalized_features}):
        lowest, highest = node.supported_features.get(name, _NO_LEVEL)
        level = node.finalized_features.get(name, 0)
        yield (
            f"Feature: {name:<40}  SupportedMinVersion: {_level(name, lowest):<15}  "
            f"SupportedMaxVersion: {_level(name, highest):<15}  FinalizedVersionLevel: {_level(name, level):<15}  "
            f"Epoch: {epoch if epoch >= 0 else '-'}"
        )


def _level(feature: str, level: int) -> str:
    """A level as Kafka's tool shows it."""
    if feature != _METADATA_VERSION:
        return str(level)
    version = RELEASE_VERSIONS.get(level)
    return f"UNKNOWN [{level}]" if version is None else version.name


async def _upgraded(peer: Peer, version: ReleaseVersion) -> list[str]:
    """Raise the levels of all features to those of a release version. Raises UpdateRefused, PeerError."""
    levels = _levels_of(version)
    request = UpdateFeaturesRequest(
        timeout_ms=TIMEOUT_MS,
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdate(feature=name, max_version_level=level, upgrade_type=_UPGRADE)
            for name, level in levels.items()
        ],
    )
    answer = await peer.ask(request, UpdateFeaturesResponse)
    outcomes = [(answer.error_code, answer.error_message)]
    outcomes += [(one.error_code, one.error_message) for one in answer.results]
    for code, message in outcomes:
        if code != ErrorCode.NONE:
            raise UpdateRefused(f"{peer.endpoint} refuses: {message or described(code)}")
    return [f"{name} was upgraded to {level}." for name, level in sorted(levels.items())]


def _levels_of(version: ReleaseVersion) -> Mapping[str, int]:
    if version.metadata_version < _VOTERS_SINCE:
        return version.levels
    return {**version.levels, _KRAFT_VERSION: 1}


def _print(lines: Sequence[str]) -> int:
    for line in lines:
        print(line)
    return DONE


def _failed(reason: str) -> int:
    sys.stderr.write(f"ottla features: {reason}\n")
    return REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla features",
        description="Show the feature levels of a running cluster, or raise them to those of a release of Kafka.",
        epilog="exit code: 0 if it is done; 1 if not, with the reason on stderr; 2 for bad usage",
    )
    _add_login_options(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    describe = commands.add_parser("describe", help="show the supported and the finalised levels (the default)")
    upgrade = commands.add_parser("upgrade", help="raise all features to the levels of a release")
    upgrade.add_argument(
        "--release-version", type=_release_version, required=True, metavar="VERSION", help="such as 4.4, or 4.4-IV2"
    )
    for command in (describe, upgrade):
        # Also behind the command, where an option that is not given leaves what stands before it.
        _add_login_options(command, default=argparse.SUPPRESS)
    return parser


def _add_login_options(parser: argparse.ArgumentParser, **default: Any) -> None:
    parser.add_argument(
        "--bootstrap-server", type=_addresses, metavar="HOST:PORT[,…]", **default,
        help=f"brokers of the cluster, of which the first that can be reached is asked; default: {_DEFAULT_SERVER}",
    )  # fmt: skip
    parser.add_argument(
        "--command-config", metavar="FILE", **default,
        help="the login, as Kafka's tools take it: client settings with security.protocol, ssl.…, sasl.…",
    )  # fmt: skip


def _addresses(text: str) -> list[PeerEndpoint]:
    try:
        found = [read_address("--bootstrap-server", one, one) for one in map(str.strip, text.split(","))]
    except InvalidConfig as error:
        raise argparse.ArgumentTypeError(f"found '{error.value}', expected {error.expected}") from None
    return [PeerEndpoint(UNKNOWN_ID, one.host, one.port) for one in found]


def _release_version(text: str) -> ReleaseVersion:
    try:
        version = read_release_version(text)
    except InvalidConfig as error:
        raise argparse.ArgumentTypeError(f"found '{text}', expected {error.expected}") from None
    if version is None:
        raise argparse.ArgumentTypeError("found nothing, expected a release of Kafka such as 4.4")
    return version
