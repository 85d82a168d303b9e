"""Tables for terminals, pipes and logs: a number is never cut or wrapped, a long text is folded and keeps all its characters.

A terminal that is too narrow for the numbers of a table gets lines that are longer than itself. What is no terminal has no
width: a table there is as wide as its content, unless the environment says otherwise (COLUMNS).
"""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

#: The width of what is no terminal; no table is as wide.
_UNBOUNDED = 100_000
#: The smallest width that columns of text are folded to.
_NARROWEST = 12


class Output(Console):
    """Standard output or standard error; without a width of its own where it is no terminal."""

    @property
    def size(self) -> ConsoleDimensions:
        """The size of the terminal, or the default without one."""
        known = super().size
        has_width = self.is_terminal or self._environ.get("COLUMNS", "").isdigit()
        return known if has_width else ConsoleDimensions(_UNBOUNDED, known.height)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self.width, self.height = new_size


class FoldedTable(Table):
    """A table whose columns of numbers (``no_wrap``) keep their width, whatever the width of the terminal."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded, needed = options.update(width=_UNBOUNDED), 1
        for column in self.columns:
            cells = [column.header, *column.cells, column.footer]
            widest = max(Measurement.get(console, unbounded, cell).maximum for cell in cells)
            column.min_width = widest if column.no_wrap else min(widest, _NARROWEST)
            needed += column.min_width + 3  # a blank on either side, and a line
        yield from super().__rich_console__(console, options.update(width=max(needed, options.max_width)))


def table_of(texts: Iterable[str], numbers: Iterable[str] = (), header: bool = True) -> FoldedTable:
    """An empty table.

    Parameters
    ----------
    texts
        The names of the first columns, which have texts.
    numbers
        The names of the columns after them, which have numbers or times.
    header
        Whether the names are shown.
    """
    table = FoldedTable(show_header=header)
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def bar(value: float | None, longest: float, width: int = 24) -> Text:
    """A bar in proportion to a value; it is cut where there is no room, as it says nothing that the number does not.

    Parameters
    ----------
    value
        Its value; nothing is drawn for None, zero and negative values.
    longest
        The value of the longest bar.
    width
        The width of the longest bar, in characters.

    >>> bar(50, 100).plain, bar(None, 100).plain
    ('████████████', '')
    """
    drawn = 0 if not value or value < 0 or not longest else max(1, round(width * value / longest))
    return Text("█" * drawn, no_wrap=True, overflow="crop")


def plain(value: Any) -> Text:
    """A key or name as it is, whatever is in it: no markup, and nothing that would steer a terminal.

    >>> plain("[red]a\\x1b[2J").plain
    '[red]a\\\\x1b[2J'
    """
    text = str(value)
    return Text("".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text))


def title(text: str) -> Text:
    """A line above a table; as the table's own title it would be wrapped at the table's width."""
    line = plain(text)
    line.stylize("italic")
    return line


def show(console: Console, *parts: RenderableType, soft_wrap: bool = False) -> None:
    """Print tables and texts, none of which is cut.

    Parameters
    ----------
    console
        Where to print.
    parts
        What to print, each on lines of its own.
    soft_wrap
        Whether the terminal wraps long lines, so that paths in them can be copied; by default they are wrapped at words.
    """
    for part in parts:
        console.print(part, crop=False, soft_wrap=soft_wrap)
