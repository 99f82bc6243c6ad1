"""Builds the wheel, installs it beside packages that have our rooms' names, and starts the broker: `make dist`."""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
ROOMS = ("broker", "config", "protocol", "storage")


def run(*command: object, **options: object) -> str:
    """Run a command to its end and return what it printed."""
    done = subprocess.run(  # type: ignore[call-overload]
        [str(word) for word in command], check=True, text=True, stdout=subprocess.PIPE, timeout=300, **options
    )
    return str(done.stdout)


def main() -> None:
    """Raise unless the wheel installs one name only and its broker starts and stops."""
    dist = REPOSITORY / "dist"
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", dist, REPOSITORY)
    wheel = max(dist.glob("ottla-*.whl"), key=lambda path: path.stat().st_mtime)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        venv.create(home / "env", with_pip=True)
        python = home / "env" / "bin" / "python"
        run(
            python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", REPOSITORY / "requirements/runtime.txt"
        )
        run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)

        # Somebody else's packages of the same names, as most people have a `config`.
        packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
        for room in ROOMS:
            assert not (packages / room).exists(), f"the wheel installs {room} under its plain name"
            (packages / room).mkdir()
            (packages / room / "__init__.py").write_text("raise ImportError('this is not the broker')\n")

        command = [home / "env/bin/ottla", "-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", f"log.dirs={home / 'data'}"]
        with subprocess.Popen(command, cwd=home, text=True, stdout=subprocess.PIPE) as daemon:
            assert daemon.stdout is not None
            line = daemon.stdout.readline()
            daemon.terminate()
            code = daemon.wait(30)
        assert line.startswith("ready listeners=PLAINTEXT://127.0.0.1:"), line
        assert code == 0, f"exit code {code}"
    sys.stdout.write(f"{wheel.name}: installs, starts and stops\n")


if __name__ == "__main__":
    main()
