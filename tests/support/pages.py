"""Parses the HTML page of a report."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """The text of a page, its elements, and the addresses that it would load."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.classes: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.classes += (dict(attrs).get("class") or "").split()
        self.fetched += [value for name, value in attrs if name.endswith(("src", "href")) and value and value[0] != "#"]

    def handle_data(self, data: str) -> None:
        self.words += data.split()

    @property
    def text(self) -> str:
        """The whole text, with a single space between words."""
        return " ".join(self.words)
