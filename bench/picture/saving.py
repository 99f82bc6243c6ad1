"""Saving a figure as a file that is small enough for a repository."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Final

from matplotlib import pyplot
from matplotlib.figure import Figure
from PIL import Image

COLOURS: Final = 128


def save(figure: Figure, path: Path) -> None:
    """Save a figure as PNG, and close it."""
    drawn = BytesIO()
    figure.savefig(drawn)
    # A third of the bytes does: these are few colours.
    few = Image.open(drawn).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    pyplot.close(figure)
