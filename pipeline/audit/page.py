"""The result of an audit as an HTML page."""

from typing import Final

from pipeline.audit.report import Audit
from pipeline.reports.page import page

_MOST_FINDINGS: Final = 1000
_MOST_LOGS: Final = 2000


def audit_page(audit: Audit) -> str:
    """Render the HTML page; damaged logs come first."""
    findings = sorted(audit.findings, key=lambda finding: finding.kind != "damage")
    logs = sorted(audit.logs, key=lambda log: (-log.counts["damage"], -log.counts["notes"], log.topic_partition))
    return page(
        "audit.html",
        {
            "audit": audit,
            "directories": [directory.path for directory in audit.plan.directories],
            "findings": findings[:_MOST_FINDINGS],
            "logs": logs[:_MOST_LOGS],
            "speed": audit.counts["bytes"] / max(audit.seconds, 0.001),
        },
    )
