"""Metrics that boards and alerts ask for and the broker does not export yet, by the subject that will bring them.

A name leaves this list when it is exported: a test fails until it does.
"""

from __future__ import annotations

from typing import Final

from tests.support.exported_metrics import Metrics


def _metrics(*names: str, labels: str = "") -> Metrics:
    return {name: frozenset(labels.split()) for name in names}


_GROUPS = "kafka_coordinator_group_groupmetadatamanager"

AWAITED: Final[dict[str, Metrics]] = {
    "consumer groups": {
        **_metrics(
            f"{_GROUPS}_numgroups",
            f"{_GROUPS}_numgroupsstable",
            f"{_GROUPS}_numgroupspreparingrebalance",
            f"{_GROUPS}_numgroupscompletingrebalance",
            f"{_GROUPS}_numgroupsempty",
            f"{_GROUPS}_numgroupsdead",
            f"{_GROUPS}_numoffsets",
        ),
        **_metrics("kafka_consumergroup_members", labels="consumergroup"),
        **_metrics(
            "kafka_consumergroup_lag_sum", "kafka_consumergroup_current_offset_sum", labels="consumergroup topic"
        ),
        **_metrics("kafka_consumergroup_lag", labels="consumergroup topic partition"),
    },
}
