"""HTML pages from templates. Text from topics is escaped, never markup: names and keys may be anything."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipeline.reports.text import bytes_text, count_text, percent_text, ratio_text, shown, time_text

_TEMPLATES: Final = Path(__file__).with_name("templates")


def page(template: str, values: Mapping[str, Any]) -> str:
    """Render a whole page."""
    text: str = _environment().get_template(template).render(values)
    return text


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(
        bytes=bytes_text, count=count_text, ratio=ratio_text, percent=percent_text, time=time_text, shown=shown
    )
    environment.globals["styles"] = Markup(_TEMPLATES.joinpath("report.css").read_text())  # noqa: S704
    return environment
