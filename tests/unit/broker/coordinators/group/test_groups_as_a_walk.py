"""Random walks: members join, leave, stall, die and commit while time passes and writes are slow or fail."""

import os

from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.unit.broker.coordinators.group.walking import Walk

LONG_RUN = "OTTLA_TEST_GROUP_WALKS"
"""How many walks, by chance then."""
WALKS = int(os.environ.get(LONG_RUN, "1000"))
STEPS = 60


@settings(max_examples=WALKS, derandomize=LONG_RUN not in os.environ, deadline=None)
@given(st.binary(min_size=1 + 3 * STEPS, max_size=1 + 3 * STEPS))
def test_whatever_happens_nobody_shares_a_partition_nobody_is_forgotten_and_the_log_says_it_all(steps):
    walk = Walk(steps)
    try:
        walk.run()
    finally:
        note("\n".join(walk.story))
