"""The line and the text of every value in a TOML file, for error messages; ``tomllib`` reads the values themselves.

    [[queries]]             ("queries", 0)              line 1
    kind = "counts"         ("queries", 0, "kind")      line 2, text "counts"
    keys = ["/cart",        ("queries", 0, "keys", 0)   line 3, text "/cart"
            "/"]            ("queries", 0, "keys", 1)   line 4, text "/"

It relies on the file being valid TOML: read it with tomllib first.
"""

import re
import tomllib
from bisect import bisect_right
from typing import NamedTuple

#: The path from the top of a file to a table or value: names of keys, and indexes of arrays, from 0.
TomlPath = tuple[str | int, ...]

#: Values that are longer are shortened in error messages.
MAX_VALUE_LENGTH = 60

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'""")
_DOT = re.compile(r"[ \t]*\.[ \t]*")
_EQUALS = re.compile(r"[ \t]*=[ \t]*")
_STRING = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\]|\\.)*"|'[^']*\'''', re.DOTALL
)  # a multi-line text may end with up to two quotes of its own, hence {3,5}
_PLAIN = re.compile(r"[^,\]}#\n]*[^,\]}#\n \t]")


class TomlEntry(NamedTuple):
    """The line, from 1, and the value as it is written there; the text is empty for a table with a header of its own."""

    line: int
    text: str = ""


class TomlLines:
    """The lines of all tables and values of a file.

    Parameters
    ----------
    text
        The content of the file, which must be valid TOML.

    >>> lines = TomlLines('[window]\\nlength = "1h"\\ntick.size = 5')
    >>> lines.of(("window", "length"))
    TomlEntry(line=2, text='"1h"')
    >>> lines.of(("window", "lateness"))    # the line of its table
    TomlEntry(line=1, text='')
    """

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._starts = [0, *(match.end() for match in re.finditer("\n", self._text))]
        self._arrays: dict[TomlPath, int] = {}  # the number of tables in each array of tables so far
        self._at = 0
        self.entries: dict[TomlPath, TomlEntry] = {(): TomlEntry(1)}
        self._read()

    def of(self, path: TomlPath) -> TomlEntry:
        """Return the entry of a value, or if it is missing, of the innermost table that should contain it."""
        while path not in self.entries:
            path = path[:-1]
        return self.entries[path]

    # -- reading: each step takes what is at self._at, and moves on ----------------------------------------------------

    def _read(self) -> None:
        table: TomlPath = ()
        while self._skip(_BLANK) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> TomlPath:
        line, brackets = self._line(), 2 if self._text.startswith("[[", self._at) else 1
        self._at += brackets
        self._skip(_BLANK)
        *outer, last = self._key()
        self._skip(_BLANK)
        self._at += brackets
        path: TomlPath = ()
        for name in outer:
            path = self._newest((*path, name))
            self.entries.setdefault(path, TomlEntry(line))
        path = (*path, last)
        if brackets == 2:
            self.entries.setdefault(path, TomlEntry(line))
            self._arrays[path] = self._arrays.get(path, 0) + 1
        path = self._newest(path)
        self.entries[path] = TomlEntry(line)
        return path

    def _newest(self, path: TomlPath) -> TomlPath:
        """The table that a name means under a header: of an array of tables the last one."""
        return (*path, self._arrays[path] - 1) if path in self._arrays else path

    def _pair(self, table: TomlPath) -> None:
        line, path = self._line(), table
        names = self._key()
        for name in names:
            path = (*path, name)
            self.entries.setdefault(path, TomlEntry(line))
        self._skip(_EQUALS)
        self._value(path, line)

    def _key(self) -> list[str]:
        names = []
        while True:
            text = self._take(_KEY)
            names.append(str(tomllib.loads(f"_ = {text}")["_"]) if text[0] in "\"'" else text)
            if not _DOT.match(self._text, self._at):
                return names
            self._skip(_DOT)

    def _value(self, path: TomlPath, line: int) -> None:
        start = self._at
        match self._text[start]:
            case "[":
                self._array(path)
            case "{":
                self._inline_table(path)
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self._skip(_PLAIN)
        self.entries[path] = TomlEntry(line, self._text[start : self._at])

    def _array(self, path: TomlPath) -> None:
        self._at += 1
        number = 0
        while self._text[self._skip(_BLANK)] != "]":
            self._value((*path, number), self._line())
            number += 1
            self._comma()
        self._at += 1

    def _inline_table(self, path: TomlPath) -> None:
        self._at += 1
        while self._text[self._skip(_BLANK)] != "}":
            self._pair(path)
            self._comma()
        self._at += 1

    def _comma(self) -> None:
        if self._text[self._skip(_BLANK)] == ",":
            self._at += 1

    def _line(self) -> int:
        return bisect_right(self._starts, self._at)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        self._take(pattern)
        return self._at

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        assert match is not None, f"no {pattern.pattern} at line {self._line()}: not valid TOML"
        self._at = match.end()
        return match[0]


def dotted(path: TomlPath) -> str:
    """Write a path with dots and indexes.

    >>> dotted(("queries", 1, "kind")), dotted(("run", "spark", "spark.ui.enabled"))
    ('queries[1].kind', 'run.spark."spark.ui.enabled"')
    """
    steps = [f"[{step}]" if isinstance(step, int) else f".{quoted_key(step)}" for step in path]
    return "".join(steps).removeprefix(".")


def shortened(text: str, longest: int = MAX_VALUE_LENGTH) -> str:
    """Shorten a value to one line of at most this many characters."""
    first, *more = text.split("\n")
    return f"{first[:longest].rstrip()}…" if more or len(first) > longest else first


def quoted_key(key: str) -> str:
    """Write a key as TOML does: in quotes if it needs them."""
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else f'"{key}"'
