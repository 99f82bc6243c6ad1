"""`make fuzz`: every target in turn, from its seeds, its findings and what earlier runs kept, for so many tries."""

import argparse
import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.fuzz.targets import FINDINGS, TARGETS, Target

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
PROGRESS_S = 10.0
_PROGRESS = re.compile(r"#(\d+)\s.*?cov: (\d+) .*?corp: (\d+)/.*?exec/s: (\d+)")
_LIMITS = ("-timeout=20", "-rss_limit_mb=1500", "-print_final_stats=1")


def main() -> int:
    """Fuzz; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000_000, help="tries of each target")
    parser.add_argument("--only", nargs="*", choices=list(TARGETS), default=list(TARGETS), metavar="TARGET")
    options = parser.parse_args()
    broken = [name for name in options.only if not _fuzz(TARGETS[name], options.runs)]
    for name in broken:
        sys.stderr.write(f"{name}: a promise was broken; what broke it lies in {FINDINGS / name}\n")
    return 1 if broken else 0


def _fuzz(target: Target, runs: int) -> bool:
    """Run one target; whether nothing was found."""
    corpus = CORPUS / target.name
    findings = FINDINGS / target.name
    for directory in (corpus, findings):
        directory.mkdir(parents=True, exist_ok=True)
    _keep(corpus, target.seeds())
    command = [sys.executable, "-m", "tests.fuzz.fuzzer", target.name, f"-runs={runs}", *_LIMITS]
    command += [f"-artifact_prefix={findings}/", str(corpus), str(findings)]
    told = 0.0
    with subprocess.Popen(command, cwd=HERE.parent.parent, stderr=subprocess.PIPE, text=True) as fuzzer:
        assert fuzzer.stderr is not None
        last: list[str] = []
        for line in fuzzer.stderr:
            last = [*last[-60:], line]
            progress = _PROGRESS.search(line)
            if progress and time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                tries, branches, inputs, speed = map(int, progress.groups())
                print(
                    f"{target.name}: {tries:,} of {runs:,} tries, {branches:,} branches, {inputs:,} inputs, {speed:,}/s"
                )
    if fuzzer.returncode:
        sys.stderr.writelines(last)
        return False
    print(*(line.strip() for line in last if line.startswith("stat::")), sep="\n")
    return True


def _keep(directory: Path, inputs: Iterable[bytes]) -> None:
    for content in inputs:
        (directory / hashlib.sha256(content).hexdigest()[:20]).write_bytes(content)


if __name__ == "__main__":
    raise SystemExit(main())
