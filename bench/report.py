"""What a benchmark is given, and what it hands back: tables, notes, and verdicts on what was promised."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text


@dataclass(frozen=True)
class Options:
    """What the command line asks of a benchmark."""

    quick: bool = False
    rows: int | None = None
    data: Path | None = None
    plot: Path | None = None
    #: Called with a line that says what is going on.
    tell: Callable[[str], None] = lambda line: None

    def size(self, normal: int, quick: int) -> int:
        """How many rows to use: those asked for, or fewer with --quick, or the benchmark's own number."""
        return self.rows or (quick if self.quick else normal)


@dataclass
class Table:
    """Rows of plain values; a column's format says how a person wants to read its numbers."""

    title: str
    columns: dict[str, str]
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, *values: Any) -> None:
        assert len(values) == len(self.columns), (values, list(self.columns))
        self.rows.append(values)

    def as_dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Verdict:
    """A promise, what came out, and whether it was kept."""

    claim: str
    measured: float
    wanted: str
    ok: bool

    @classmethod
    def at_least(cls, claim: str, measured: float, limit: float) -> "Verdict":
        return cls(claim, measured, f">= {limit:.3g}", bool(measured >= limit))

    @classmethod
    def at_most(cls, claim: str, measured: float, limit: float) -> "Verdict":
        return cls(claim, measured, f"<= {limit:.3g}", bool(measured <= limit))

    @classmethod
    def below(cls, claim: str, measured: float, limit: float) -> "Verdict":
        return cls(claim, measured, f"< {limit:.3g}", bool(measured < limit))


@dataclass
class Report:
    """The answer to one question."""

    title: str
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "title": self.title,
            "ok": self.ok,
            "tables": [{"title": table.title, "rows": table.as_dicts()} for table in self.tables],
            "notes": self.notes,
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
        }

    def show(self, console: Console) -> None:
        """For people."""
        console.print(Text(self.title, style="bold"))  # no rule: a pipe has no width
        for table in self.tables:
            console.print(_rich(table))
        for note in self.notes:
            console.print(Text(f"· {note}", style="dim"))
        if self.verdicts:
            console.print(_verdicts(self.verdicts))


def _rich(table: Table) -> RichTable:
    # Titles, cells and claims may name a file, and what it is called is no markup.
    out = RichTable(title=escape(table.title), title_justify="left", title_style="italic", box=SIMPLE_HEAD)
    for name in table.columns:
        numbers = any(isinstance(row[list(table.columns).index(name)], int | float) for row in table.rows)
        out.add_column(name, justify="right" if numbers else "left")
    for row in table.rows:
        out.add_row(*(_cell(value, form) for value, form in zip(row, table.columns.values(), strict=True)))
    return out


def _cell(value: Any, form: str) -> str:
    if value is None:
        return "–"
    return escape(value) if isinstance(value, str) else format(value, form)


def _verdicts(verdicts: list[Verdict]) -> RichTable:
    out = RichTable(title="what was promised", title_justify="left", title_style="italic", box=SIMPLE_HEAD)
    out.add_column("claim")
    out.add_column("measured", justify="right")
    out.add_column("wanted")
    out.add_column("")
    for v in verdicts:
        out.add_row(
            escape(v.claim), f"{v.measured:.3g}", v.wanted, Text("kept", "green") if v.ok else Text("MISSED", "bold red")
        )
    return out
