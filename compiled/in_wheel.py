"""The build hook that adds compiled modules to a wheel; without a compiler the wheel is one for every machine."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledHotPath(BuildHookInterface[Any]):
    """Found by hatchling, since it is the only one in the file that `pyproject.toml` names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the hot path before the files of the wheel are collected."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from compiled.packages import NotCompiled, compile_packages, extensions

        directory = Path(self.root) / "build" / f"compiled-{sys.implementation.cache_tag}"
        try:
            compile_packages(directory)
        except NotCompiled as reason:
            self.app.display_warning(f"The wheel holds the broker as it is written, not compiled: {reason}.")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in extensions(directory):
            build_data["force_include"][str(path)] = f"ottla/{path.relative_to(directory)}"
