"""systemd/ottla.service, as far as systemd's own tools can tell without running it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[3] / "systemd/ottla.service"

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    # The broker is not installed where the unit looks for it, and that would be all that is said.
    unit.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={shutil.which('true')}", UNIT.read_text()))

    said = analyze("verify", str(unit))

    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_the_service_gets_at_little_that_is_not_its_own() -> None:
    said = analyze("security", "--offline=true", str(UNIT))
    if "Unknown option" in said.stderr or "unrecognized option" in said.stderr:
        pytest.skip("this systemd-analyze looks at running services only")

    exposure = re.search(r"Overall exposure level for \S+: (\d+\.\d)", said.stdout)

    assert exposure is not None, said.stdout + said.stderr
    assert float(exposure[1]) < 2, said.stdout
