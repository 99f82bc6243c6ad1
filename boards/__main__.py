"""`python -m boards` (`make docs`) writes the JSON of every board to docker/grafana/dashboards."""

import json
from pathlib import Path
from typing import Final

from boards.all_boards import BOARDS
from boards.panels import Board

DIRECTORY: Final = Path(__file__).resolve().parents[1] / "docker" / "grafana" / "dashboards"


def text_of(board: Board) -> str:
    """The file of a board."""
    return json.dumps(board.json(), ensure_ascii=False, indent=2) + "\n"


def main() -> None:
    """Write them all."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (DIRECTORY / f"{board.name}.json").write_text(text_of(board))


if __name__ == "__main__":
    main()
