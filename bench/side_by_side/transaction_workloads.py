"""Workloads of transactional producers, and of consumers that read committed records only."""

from __future__ import annotations

from functools import partial
from typing import Final

from bench import transaction_cases
from bench.limits import MEGABYTE
from bench.side_by_side.workload import CPU_S_GB, MB_S, PERCENTILES, RECORDS_S, Row, Workload
from bench.transaction_cases import MOST_SECONDS, PRODUCERS, RECORD_BYTES, TRANSACTIONS
from protocol.api_keys import ApiKey

TRANSACTIONS_S: Final = Row("transactions_s", "transactions/s", True)
CPU_US_TRANSACTION: Final = Row("cpu_us", "broker CPU µs/transaction", False)
CPU_RATIO: Final = Row("ratio", "CPU, to that of read_uncommitted", False)

NEEDED: Final = frozenset({ApiKey.END_TXN})


def _committed(producers: int, records: int) -> Workload:
    several = producers > 1
    return Workload(
        name=f"transactions-{records}{f'-{producers}-producers' if several else ''}",
        words=f"{records:,} records each, {producers} producer{'s' if several else ''}",
        rows=(TRANSACTIONS_S, RECORDS_S, CPU_US_TRANSACTION),
        seconds=MOST_SECONDS,
        written_mb=TRANSACTIONS[records] * records * RECORD_BYTES / MEGABYTE,
        measure=partial(transaction_cases.committed, producers=producers, records=records),
        warms=several,
        needs=NEEDED,
    )


def _read_committed(name: str, words: str, *, partitions: int) -> Workload:
    return Workload(
        name=f"read-committed-{name}",
        words=f"fetches under read_committed, without transactions: {words}, 2 in flight",
        rows=(MB_S, CPU_S_GB, CPU_RATIO),
        seconds=5.0,
        measure=partial(transaction_cases.read_committed, partitions=partitions),
        warms=True,
    )


def workloads() -> list[Workload]:
    """The workloads of transactions, in the order of the page."""
    return [
        *(_committed(producers, records) for records in TRANSACTIONS for producers in (1, PRODUCERS)),
        Workload(
            name="transactions-latency",
            words="one record each: from beginning to committed",
            rows=PERCENTILES[:2],
            seconds=MOST_SECONDS,
            measure=transaction_cases.commit_latency,
            needs=NEEDED,
            is_of_moments=True,
        ),
        _read_committed("64kb", "64 KB", partitions=1),
        _read_committed("16x64kb", "16 x 64 KB", partitions=16),
    ]
