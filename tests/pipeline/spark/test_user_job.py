"""A user's own job by spark-submit, on a cluster of one worker, with a `config` of his own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from dev.broker_process import BrokerProcess
from dev.repository import REPOSITORY
from dev.spark_home import linked_home
from pipeline.requirements import Missing, require_java
from tests.support.clients import Record, connect

JOB = Path(__file__).parent / "user_job/job.py"


@pytest.mark.timeout(300)
def test_kafka_log_on_a_cluster_beside_the_users_own_modules(own_broker: BrokerProcess, tmp_path: Path) -> None:
    try:
        require_java()
    except Missing as reason:
        pytest.skip(str(reason))
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("orders")
    client.produce("orders", [Record(value=b"%d" % n) for n in range(20)])
    own_broker.stop()
    home = linked_home(tmp_path / "spark", Path(pyspark.__file__).parent)
    command = [
        *(home / "bin/spark-submit", "--master", "local-cluster[1,1,1024]"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
        *(JOB, own_broker.data_directory, "orders"),
    ]
    ours = {"PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home)}
    done = subprocess.run(
        command, cwd=JOB.parent, env={**os.environ, **ours}, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["[20, 'theirs: 0', 'theirs: 1', 20]"], done.stderr[-3000:]
