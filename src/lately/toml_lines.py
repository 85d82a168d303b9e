"""Where everything in a TOML file stands, and what is wrong there. The standard library reads the values; this finds the line
and the text of each, and says in plain words what a pydantic model refuses of them.

    [[queries]]             ("queries", 0)              line 1
    kind = "counts"         ("queries", 0, "kind")      line 2, written "counts"
    keys = ["/cart",        ("queries", 0, "keys", 0)   line 3, written "/cart"
            "/"]            ("queries", 0, "keys", 1)   line 4, written "/"

It relies on the file being valid TOML: read it with tomllib first.
"""

import dataclasses
import difflib
import json
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lately.core.errors import LatelyError

#: The way from the top of a file to a table or value: names of keys, and numbers in arrays, from 0.
Way = tuple[str | int, ...]

#: Values that are longer are cut where they are shown.
_SHOWN = 60
#: Paths and expressions, which are what Spark's errors are about, may be longer.
_SHOWN_WHOLE = 300
#: Mistakes that are told at once; more are only counted.
_MOST_TOLD = 20

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'""")
_DOT = re.compile(r"[ \t]*\.[ \t]*")
_EQUALS = re.compile(r"[ \t]*=[ \t]*")
_STRING = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\]|\\.)*"|'[^']*\'''', re.DOTALL
)  # of five quotes that end a text over several lines, two belong to the text
_PLAIN = re.compile(r"[^,\]}#\n]*[^,\]}#\n \t]")


class Place(NamedTuple):
    """The line, from 1, and the value as it is written there: nothing for a table under a header of its own."""

    line: int
    written: str = ""


class Places:
    """The places of everything in a file.

    >>> places = Places('[window]\\nlength = "1h"\\ntick.size = 5')
    >>> places.of(("window", "length"))
    Place(line=2, written='"1h"')
    >>> places.of(("window", "lateness"))    # the table where it could be
    Place(line=1, written='')
    """

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._starts = [0, *(match.end() for match in re.finditer("\n", self._text))]
        self._arrays: dict[Way, int] = {}  # how many tables the arrays of tables have so far
        self._at = 0
        self.found: dict[Way, Place] = {(): Place(1)}
        self._read()

    def of(self, way: Way) -> Place:
        """The place of a value, or else of the innermost table around it that there is."""
        while way not in self.found:
            way = way[:-1]
        return self.found[way]

    # -- reading: each step takes what is at self._at, and moves on ----------------------------------------------------

    def _read(self) -> None:
        table: Way = ()
        while self._skip(_BLANK) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Way:
        line, brackets = self._line(), 2 if self._text.startswith("[[", self._at) else 1
        self._at += brackets
        self._skip(_BLANK)
        *outer, last = self._key()
        self._skip(_BLANK)
        self._at += brackets
        way: Way = ()
        for name in outer:
            way = self._newest((*way, name))
            self.found.setdefault(way, Place(line))
        way = (*way, last)
        if brackets == 2:
            self.found.setdefault(way, Place(line))
            self._arrays[way] = self._arrays.get(way, 0) + 1
        way = self._newest(way)
        self.found[way] = Place(line)
        return way

    def _newest(self, way: Way) -> Way:
        """The table that a name means under a header: of an array of tables the last one."""
        return (*way, self._arrays[way] - 1) if way in self._arrays else way

    def _pair(self, table: Way) -> None:
        line, way = self._line(), table
        names = self._key()
        for name in names:
            way = (*way, name)
            self.found.setdefault(way, Place(line))
        self._skip(_EQUALS)
        self._value(way, line)

    def _key(self) -> list[str]:
        names = []
        while True:
            written = self._take(_KEY)
            names.append(str(tomllib.loads(f"_ = {written}")["_"]) if written[0] in "\"'" else written)
            if not _DOT.match(self._text, self._at):
                return names
            self._skip(_DOT)

    def _value(self, way: Way, line: int) -> None:
        start = self._at
        match self._text[start]:
            case "[":
                self._array(way)
            case "{":
                self._inline_table(way)
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self._skip(_PLAIN)
        self.found[way] = Place(line, self._text[start : self._at])

    def _array(self, way: Way) -> None:
        self._at += 1
        number = 0
        while self._text[self._skip(_BLANK)] != "]":
            self._value((*way, number), self._line())
            number += 1
            self._comma()
        self._at += 1

    def _inline_table(self, way: Way) -> None:
        self._at += 1
        while self._text[self._skip(_BLANK)] != "}":
            self._pair(way)
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


def dotted(way: Way) -> str:
    """A way as people write it.

    >>> dotted(("queries", 1, "kind")), dotted(("run", "spark", "spark.ui.enabled"))
    ('queries[1].kind', 'run.spark."spark.ui.enabled"')
    """
    steps = [f"[{step}]" if isinstance(step, int) else f".{_name(step)}" for step in way]
    return "".join(steps).removeprefix(".")


def shown(written: str, longest: int = _SHOWN) -> str:
    """A value as it is written, in one line that is not too long."""
    first, *more = written.split("\n")
    return f"{first[:longest].rstrip()}…" if more or len(first) > longest else first


def _name(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else f'"{key}"'


# -- mistakes that models find beyond what pydantic does ---------------------------------------------------------------


class MisfitError(ValueError):
    """Mistakes in a table that pydantic cannot see, each with the way to it from there."""

    def __init__(self, found: list[tuple[Way, str]]) -> None:
        super().__init__("; ".join(f"{dotted(way)}: {says}" if way else says for way, says in found))
        self.found = found


class Found:
    """Collects mistakes, so that all are told at once."""

    def __init__(self) -> None:
        self._found: list[tuple[Way, str]] = []

    @contextmanager
    def at(self, *way: str | int) -> Iterator[None]:
        """What lately refuses inside is a mistake there."""
        try:
            yield
        except MisfitError as error:
            self._found += [((*way, *inner), says) for inner, says in error.found]
        except LatelyError as error:
            self._found.append((way, str(error)))

    def __bool__(self) -> bool:
        return bool(self._found)

    def tell(self) -> None:
        """Raise what was found, if anything was."""
        if self._found:
            raise MisfitError(self._found)


# -- what pydantic finds, in plain words -------------------------------------------------------------------------------

_ADVICE = {
    "string_type": "give a text, in quotes",
    "string_too_short": "give a text that is not empty",
    "string_too_long": "give {max_length} characters at the most",
    "string_pattern_mismatch": "give letters, digits, spaces and the signs _ . - only, a letter or digit first",
    "int_type": "give a whole number",
    "float_type": "give a number",
    "finite_number": "give a finite number",
    "bool_type": "give true or false",
    "greater_than": "give more than {gt:g}",
    "greater_than_equal": "give {ge:g} at the least",
    "less_than": "give less than {lt:g}",
    "less_than_equal": "give {le:g} at the most",
    "too_short": "give {min_length} at the least",
    "too_long": "give {max_length} at the most",
    "list_type": "give a list, such as [1, 2]",
    "dict_type": "give a table",
    "model_type": "give a table",
    "model_attributes_type": "give a table",
}


class _Mistake(NamedTuple):
    """Where it is, what it is about, and what is said of that."""

    way: Way
    about: Way
    says: str


def explained(error: ValidationError, model: type[BaseModel], text: str | None, name: str) -> str:
    """What a model refused of a file: a line for each mistake, with its place, the value as written, and what to do.

    Without a text there are no places to tell.
    """
    places = Places(text or "")
    told: dict[tuple[int, str], None] = {}  # a set that keeps the order
    for way, about, says in _mistakes(error, model):
        subject = _subject(about, places.found.get(about))
        told[places.of(way).line, f"{subject}{says}".replace("\n", " ")] = None
    lines = [
        f"{name}: {says}" if text is None else f"{name}:{line}: {says}" for line, says in sorted(told, key=lambda one: one[0])
    ]
    more = [f"{name}: and {len(lines) - _MOST_TOLD} more like these"] if len(lines) > _MOST_TOLD else []
    return "\n".join(lines[:_MOST_TOLD] + more)


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where the values of a model come from, for mistakes that are found after the file was read.

    ``name`` is the file's name and ``text`` its content, None for values that come from no file. All are equal, so that
    the same values from two files are.

    >>> origin = Origin("shop.toml", '[columns]\\ntime = "ts +"')
    >>> origin.mistake(("columns", "time"), "ts +", "syntax error")
    (2, 'shop.toml:2: columns.time = "ts +": syntax error')
    >>> Origin().mistake(("columns", "time"), "ts +", "syntax error")
    (1, 'pipeline: columns.time = "ts +": syntax error')
    """

    name: str = dataclasses.field(default="pipeline", compare=False)
    text: str | None = dataclasses.field(default=None, compare=False)

    def mistake(self, way: Way, value: Any, says: str, owner: str = "") -> tuple[int, str]:
        """The line of a value, and a sentence: where it is, the value (None: not shown), whose it is, what is wrong."""
        places = Places(self.text or "")
        place = places.found.get(way)
        shows = place.written if place is not None and place.written else json.dumps(value, ensure_ascii=False)
        subject = dotted(way) if value is None else f"{dotted(way)} = {shown(shows, _SHOWN_WHOLE)}"
        line = places.of(way).line
        at = self.name if self.text is None else f"{self.name}:{line}"
        return line, f"{at}: {subject}{owner}: {says}".replace("\n", " ")


def _subject(way: Way, place: Place | None) -> str:
    if not way:
        return "the file"
    if place is not None and place.written and not place.written.startswith("{"):
        return f"{dotted(way)} = {shown(place.written)}"
    is_header = all(isinstance(step, str) for step in way) and (place is not None or len(way) == 1)
    return f"[{dotted(way)}]" if is_header else dotted(way)


def _mistakes(error: ValidationError, model: type[BaseModel]) -> Iterator[_Mistake]:
    errors = error.errors(include_url=False)
    guessed = set()  # keys that are there, but misspelt: nobody need be told that they are missing
    for one in errors:
        if one["type"] == "extra_forbidden":
            table, way = _walked(model, one["loc"][:-1])
            says, guess = _unknown(str(one["loc"][-1]), table, model)
            guessed.add((*way, guess))
            yield _Mistake((*way, one["loc"][-1]), way, says)
    for one in errors:
        kind, way = _walked(model, one["loc"])
        if one["type"] in ("missing", "union_tag_not_found"):
            way = way if one["type"] == "missing" else (*way, "kind")
            if way not in guessed:
                yield _Mistake(way[:-1], way[:-1], _missing(way, kind, one, model))
        elif one["type"] == "union_tag_invalid":
            yield _Mistake((*way, "kind"), (*way, "kind"), f": give one of {_words(one['ctx']['expected_tags'])}")
        elif one["type"] == "value_error" and isinstance(one["ctx"]["error"], MisfitError):
            for inner, says in one["ctx"]["error"].found:
                yield _Mistake((*way, *inner), (*way, *inner), f": {says}")
        elif one["type"] != "extra_forbidden":
            yield _Mistake(way, way, f": {_advice(one)}")


def _advice(error: ErrorDetails) -> str:
    given = error.get("ctx", {})
    if error["type"] == "value_error":
        return str(given["error"])
    if error["type"] == "literal_error":
        return f"give one of {_words(given['expected'])}"
    if error["type"] == "list_type" and isinstance(error["input"], Mapping):
        return f"there can be several; write [[{dotted(error['loc'])}]]"
    if error["type"] in _ADVICE:
        return _ADVICE[error["type"]].format(**given)
    return error["msg"].replace("Input should be", "give")


def _unknown(key: str, table: Any, model: type[BaseModel]) -> tuple[str, str]:
    """What to say of a key that a table does not know, and the one that was probably meant."""
    for guess in difflib.get_close_matches(key, table.model_fields, 1):
        return f" does not know {_name(key)}; did you mean {guess}?", guess
    for other, field in model.model_fields.items():
        if table is not field.annotation and key in getattr(field.annotation, "model_fields", {}):
            return f" does not know {_name(key)}; it belongs in [{other}]", ""
    return f" does not know {_name(key)}; it knows {', '.join(table.model_fields)}", ""


def _missing(way: Way, kind: Any, error: ErrorDetails, model: type[BaseModel]) -> str:
    key = str(way[-1])
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f" has no [{key}]; add it with {' and '.join(_examples(kind))}"
    if error["type"] == "union_tag_not_found":
        item, _ = _walked(model, error["loc"])
        return f" has no kind; give one of {', '.join(_members(item))}"
    table, _ = _walked(model, error["loc"][:-1])
    return f" has no {key}; add {_example(key, table)}"


def _examples(table: type[BaseModel]) -> list[str]:
    return [_example(key, table) for key, field in table.model_fields.items() if field.is_required()]


def _example(key: str, table: type[BaseModel]) -> str:
    (example,) = table.model_fields[key].examples or ["…"]
    return f"{key} = {json.dumps(example, ensure_ascii=False)}"


def _words(expected: str) -> str:
    """Pydantic's 'a', 'b' or 'c' without the quotes."""
    return ", ".join(re.findall("'([^']*)'", expected))


def _walked(kind: Any, location: Way) -> tuple[Any, Way]:
    """The type at a location of pydantic's, and the way to it in the file, which has no step for members of a union."""
    way: Way = ()
    for step in location:
        kind = _plain(kind)
        if step in (members := _members(kind)):
            kind = members[str(step)]
            continue
        way = (*way, step)
        if isinstance(kind, type) and issubclass(kind, BaseModel) and step in kind.model_fields:
            kind = kind.model_fields[str(step)].annotation
        else:
            kind = get_args(kind)[0] if get_origin(kind) is list else None
    return _plain(kind), way


def _plain(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _members(kind: Any) -> dict[str, Any]:
    """The tables of which a list has several kinds, by the word that tells them."""
    if get_origin(kind) not in (Union, UnionType):
        return {}
    tables = [member for member in get_args(kind) if isinstance(member, type) and issubclass(member, BaseModel)]
    return {word: table for table in tables for word in get_args(table.model_fields["kind"].annotation)}
