"""Whether this broker can hold the feature levels that a cluster has finalised (KIP-584)."""

from collections.abc import Mapping

from broker.metadata.registration import SUPPORTED_FEATURES, RegistrationRefused


class UnsupportedFeatures(RegistrationRefused):
    """The cluster has finalised levels that this broker does not support. It names each level and each range."""


def check_features(finalized: Mapping[str, int], supported: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES) -> None:
    """Check the finalised levels of a cluster, by feature. Raises UnsupportedFeatures.

    A feature at level 0 is not in use: it needs no support.
    """
    faults = []
    for name, level in sorted(finalized.items()):
        if level == 0:
            continue
        if name not in supported:
            faults.append(f"{name} at {level}, which this broker does not know")
        elif not supported[name][0] <= level <= supported[name][1]:
            faults.append(
                f"{name} at {level}, of which this broker supports {supported[name][0]} to {supported[name][1]}"
            )
    if faults:
        raise UnsupportedFeatures(
            f"the cluster has finalised {'; '.join(faults)}. `kafka-features downgrade` lowers the levels of all "
            "features but metadata.version and kraft.version"
        )
