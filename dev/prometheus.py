"""A Prometheus process for a test: its configuration, start and stop, and its HTTP API."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from dev.repository import REPOSITORY
from dev.waiting import until

CONFIGURATION = REPOSITORY / "docker" / "prometheus"

_ADDRESS = re.compile(r'msg="Listening on" address=(\S+)')
_ANSWER_S = 30.0


class QueryRefused(Exception):
    """Prometheus's error message about a query."""


class Prometheus:
    """A Prometheus process on a free port."""

    def __init__(self, program: str, directory: Path, configuration: Mapping[str, Any]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / "prometheus.yml"
        self._file.write_text(yaml.safe_dump(dict(configuration)))
        self._log = directory / "prometheus.log"
        self._command = [
            program,
            f"--config.file={self._file}",
            f"--storage.tsdb.path={directory / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""

    def start(self) -> Prometheus:
        """Start the process and wait until it answers."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self._is_listening, "Prometheus listens")
        until(self._is_ready, "Prometheus is ready")
        return self

    def close(self) -> None:
        """End the process if it runs."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """The current series of an expression: pairs of labels and value."""
        result = self._get("query", query=expr)["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def query_range(self, expr: str, *, start_s: float, end_s: float, step_s: float) -> list[Any]:
        """The series of an expression over a time, as Prometheus returns them."""
        result = self._get("query_range", query=expr, start=str(start_s), end=str(end_s), step=str(step_s))["result"]
        assert isinstance(result, list)
        return result

    def alerts(self) -> dict[str, str]:
        """The state of each alert that is pending or firing, by name."""
        return {alert["labels"]["alertname"]: alert["state"] for alert in self._get("alerts")["alerts"]}

    def rules(self) -> list[dict[str, Any]]:
        """All rules, with the results of their last evaluation."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        """The targets that Prometheus scrapes, and the result of each last scrape."""
        active = self._get("targets")["activeTargets"]
        assert isinstance(active, list)
        return active

    def _get(self, what: str, **parameters: str) -> dict[str, Any]:
        url = f"http://{self._address}/api/v1/{what}?{urlencode(parameters)}"
        try:
            with urlopen(url, timeout=_ANSWER_S) as answer:
                data = json.load(answer)["data"]
        except HTTPError as error:
            with error:
                raise QueryRefused(f"{parameters}: {json.load(error)['error']}") from None
        assert isinstance(data, dict)
        return data

    def _is_listening(self) -> bool:
        assert self._process is not None
        text = self._log.read_text()
        assert self._process.poll() is None, f"Prometheus ended:\n{text}"
        if found := _ADDRESS.search(text):
            self._address = found[1]
        return bool(found)

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://{self._address}/-/ready", timeout=_ANSWER_S):
                return True
        except HTTPError as error:
            error.close()
            return False


def configuration_for(target: str, *, interval_s: float, rules: Path | None = None) -> dict[str, Any]:
    """The configuration of docker/prometheus with another broker, other intervals and other rules."""
    configuration: dict[str, Any] = yaml.safe_load((CONFIGURATION / "prometheus.yml").read_text())
    every = f"{round(interval_s * 1000)}ms"
    configuration["global"] = {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
    configuration["rule_files"] = [str(rules or CONFIGURATION / "alerts.yml")]
    (job,) = configuration["scrape_configs"]
    job["static_configs"] = [{"targets": [target]}]
    return configuration
