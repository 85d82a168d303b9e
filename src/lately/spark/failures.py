"""What Spark says in a hundred lines, as one sentence: the deepest cause that says something, without Java's and py4j's words.

    Py4JJavaError ─ "Job aborted" ─ … ─ "Caused by: java.io.IOException: No space left on device"
    PythonException ─ "Traceback …" ─ "KeyError: 'ts'"
                                        └─ this is the reason; the whole text goes into the log of the run

What is wrong in the file is found before anything runs, by ``analysis``; this is about what fails while it runs.
"""

import os
import re
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from lately.config import Config
from lately.core.errors import InputError, LatelyError, LeaseError
from lately.pipeline.state_versions import StateVersions
from lately.spark.expressions import expression_with

#: What Spark and the way to it raise.
SPARKS = (PySparkException, Py4JError)
#: Longer sentences are cut; the log has all of it.
_LONGEST = 700

#: Errors of Spark that only say that there is another one.
_WRAPPERS = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "FAILED_READ_FILE.NO_HINT", "TASK_WRITE_FAILED")
_SAY_NOTHING = ("Exception thrown in awaitResult", "Job aborted", "Task failed while writing", "An exception was raised by the")
_JAVA = re.compile(r"(?:Caused by: |: )?((?:[a-z_][\w$]*\.)+[A-Z][\w$]*)(?:: (.*))?$")
_LOST_TASK = re.compile(r"^Job aborted due to stage failure: .*?\(TID \d+\) \([^)]*\): ")
_PYTHON = re.compile(r"((?:\w+\.)*[A-Z]\w*)(?:: (.*))?$")
_FRAME = re.compile(r"\s+at |\s+\.\.\. \d+ |\s*Suppressed: ")
_END = re.compile(r"(== (SQL|DataFrame|Error|Progress)|JVM stacktrace|Driver stacktrace|=== Streaming Query ===)")
_FULL = re.compile("No space left on device|Disk quota exceeded|File too large")
_ERRNO = re.compile(r"\[Errno \d+\] (.+?): '(.+)'$")


class _Cause(NamedTuple):
    """One exception of a chain: its class, the condition that Spark calls it by, what it says."""

    kind: str
    condition: str
    says: str

    @property
    def says_something(self) -> bool:
        empty = self.says in ("", "null") or self.says.startswith(_SAY_NOTHING)
        return not empty and not self.condition.startswith(_WRAPPERS)


# -- the reason --------------------------------------------------------------------------------------------------------


def reason(error: BaseException) -> str:
    """Why it failed, in one line: the deepest cause that Spark tells.

    Parameters
    ----------
    error
        What was raised, by Spark, py4j, a Python worker, or lately itself.

    >>> reason(RuntimeError("Job aborted: Traceback (most recent call last):\\n  …\\nKeyError: 'ts'\\n\\n\\tat java"))
    "KeyError: 'ts'"
    """
    if isinstance(error, LatelyError):
        return str(error)
    if isinstance(error, Py4JNetworkError | ConnectionError) or "Answer from Java side is empty" in _text(error):
        return (
            "the Java process of Spark has ended; if it was killed for lack of memory, lower spark.driver.memory in [run.spark]"
        )
    says = _scrubbed(_deepest(error))
    return says if len(says) <= _LONGEST else f"{says[:_LONGEST].rstrip()}…"


def _deepest(error: BaseException) -> str:
    text = _whole_text(error)
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if "java.lang.OutOfMemoryError" in text:
        return "Java ran out of memory; give more with spark.driver.memory or spark.executor.memory in [run.spark]"
    if "Python worker exited unexpectedly" in text:
        return (
            "a Python worker of Spark ended unexpectedly; if it was killed for lack of memory, give Spark fewer cores, "
            'such as [run] master = "local[1]", or machines with more memory'
        )
    before, traced, after = text.rpartition("Traceback (most recent call last):")
    if traced and (found := _end_of_traceback(after)) is not None:
        kind, says, rest = found
        if kind.startswith("py4j."):
            return _of_chain(_causes(rest)) or _of_chain(_causes(before)) or says
        if kind.startswith("lately."):
            return says
        if kind.startswith("pyspark."):
            return _split(says)[1]
        if match := _ERRNO.match(says):
            return f"{match[2]}: {match[1]}"
        return f"{kind.rpartition('.')[2]}: {says}" if says else kind.rpartition(".")[2]
    own = text if isinstance(error, SPARKS) else ""
    head = [] if isinstance(error, Py4JError) else [_Cause(type(error).__name__, *_split(_paragraph(str(error).splitlines())))]
    found_says = _of_chain([*head, *_causes(own)])
    return found_says or f"{type(error).__name__}: {next((line for line in text.splitlines() if line.strip()), 'no reason')}"


def _of_chain(causes: list[_Cause]) -> str:
    """What the deepest cause says that has a name of Spark's, or else says anything; with the file that was read."""
    telling = [cause for cause in causes if cause.says_something]
    if not telling:
        return ""
    named = [cause for cause in telling if cause.condition]
    chosen = (named or telling)[-1]
    says = (
        chosen.says if chosen.condition or len(chosen.says.split()) > 2 else f"{chosen.kind.rpartition('.')[2]}: {chosen.says}"
    )
    for cause in causes:
        file = re.search(r"while reading file (\S+?)\.(?:\s|$)", cause.says)
        if file and file[1].rpartition("/")[2] not in says:
            return f"cannot read {file[1]}: {says}"
    return says


def _causes(text: str) -> list[_Cause]:
    """The exceptions that a Java stack trace tells, the outermost first."""
    found = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = _JAVA.match(line)
        if match is None:
            continue
        kind, says = match[1], _paragraph([match[2] or "", *lines[number + 1 :]])
        if (lost := _LOST_TASK.match(says)) and (inner := _JAVA.match(says[lost.end() :])):
            kind, says = inner[1], inner[2] or ""
        found.append(_Cause(kind, *_split(says)))
    return found


def _end_of_traceback(text: str) -> tuple[str, str, str] | None:
    """The exception that a Python traceback ends with: its class, what it says, and all that follows."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line and not line[0].isspace() and (match := _PYTHON.match(line)):
            return match[1], _paragraph([match[2] or "", *lines[number + 1 :]]), "\n".join(lines[number + 1 :])
    return None


def _paragraph(lines: list[str]) -> str:
    """Lines up to the end of what an exception says, as one."""
    taken: list[str] = []
    for line in lines:
        if _FRAME.match(line) or _END.match(line) or line.startswith(("Caused by: ", ": ")) or (taken and not line.strip()):
            break
        if line.strip():
            taken.append(line.strip())
    return " ".join(taken)


def _split(says: str) -> tuple[str, str]:
    """Spark's name for an error and what it says, without its number in the SQL standard and the plan behind that."""
    match = re.match(r"\[([A-Z][A-Z0-9_.]*)\] (.*)", says)
    condition, rest = (match[1], match[2]) if match else ("", says)
    rest = re.sub(r"\s*SQLSTATE: \w{5}.*", "", rest)
    rest = re.sub(r" If necessary set \S+ to \S+ to bypass this error\.?| Please, refer to '\S+' for a fix\.?", "", rest)
    return condition, rest.strip().rstrip(".")


def _scrubbed(says: str) -> str:
    """Without names that only lately has for columns, and without those of py4j for objects."""
    says = re.sub(r"(, )?`?_lately_\w+`?(?(1)|(, )?)", "", says)
    return re.sub(r"\bo\d+\.\w+", "Spark", says)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # py4j asks Java for it, which may have gone
        return type(error).__name__


def _whole_text(error: BaseException) -> str:
    """All that an exception of Spark's knows, with the causes in Java, which its text leaves out."""
    return "\n".join(part for part in (_text(error), getattr(error, "_stackTrace", None)) if part)


def details(error: BaseException) -> str | None:
    """All there is to know of a failure, for a log: None if Spark had no part in it, or the sentence says all of it."""
    chain, one = [], error.__cause__ if type(error) is LatelyError else None if isinstance(error, LatelyError) else error
    while one is not None and one not in chain:
        chain.append(one)
        one = one.__cause__ or one.__context__
    if not any(isinstance(cause, SPARKS) for cause in chain):
        return None
    return "\n".join(["".join(traceback.format_exception(error)), *(_whole_text(cause) for cause in chain)]) + "\n"


# -- what failed while it ran ------------------------------------------------------------------------------------------


@contextmanager
def in_batch(config: Config, number: int, versions: StateVersions) -> Iterator[None]:
    """Failures inside are raised again with the batch's number and the state that the next run starts from.

    Parameters
    ----------
    config
        The pipeline that runs, for the lines of its file.
    number
        The batch that runs inside.
    versions
        The state: what it holds when something has failed is what the next run goes on from.
    """
    try:
        yield
    except LeaseError:  # it says what has become of the state
        raise
    except (*SPARKS, OSError, LatelyError) as error:
        done = _batches(versions)
        if number in done:  # what is left is upkeep, or somebody who listens
            if not isinstance(error, SPARKS) and not getattr(error, "filename", None):
                raise
            message = f"batch {number} is done, but a step after it failed: {reason(error)}"
            raise LatelyError(message, remedy=f"the next run continues with batch {number + 1}") from error
        kind = type(error) if isinstance(error, LatelyError) else LatelyError
        message, remedy = _failed(error, config, number, done)
        raise kind(message, remedy=remedy) from error


def _failed(error: BaseException, config: Config, number: int, done: list[int]) -> tuple[str, str]:
    """What failed, and what the next run does about it."""
    message = _with_place(error, config)
    if config.source.mode == "batch":
        message, remedy = f"the run failed: {message}", "no state is kept, so run it again"
    else:
        message = f"batch {number} failed: {message}"
        state = f"the state is as batch {done[-1]} left it" if done else "there is no state yet"
        remedy = f"{state}, and the next run processes batch {number} again"
    expression = expression_with(_whole_text(error), config)
    if expression is not None:
        message = config.origin.mistake(expression.path, expression.text, message, owner=expression.owner).message
    return message, remedy


def stopped(error: BaseException, config: Config, versions: StateVersions) -> LatelyError:
    """What to raise when a stream ends between its batches: of its source, or of Spark's own log."""
    done = _batches(versions)
    state = (
        f"the state is as batch {done[-1]} left it, and the next run continues from there" if done else "there is no state yet"
    )
    message = f"the stream stopped: {_with_place(error, config)}"
    for name, value in config.source.options.items():
        if re.search(rf"[Oo]ption\W+{re.escape(name)}\b", message):
            mistake = config.origin.mistake(("source", "options", name), value, message, state)
            return InputError(mistake.message, remedy=mistake.remedy)
    return LatelyError(message, remedy=state)


def _with_place(error: BaseException, config: Config) -> str:
    """The reason; for a full disk also where it is full, and what to do."""
    says = reason(error)
    full = _FULL.search(says)
    if not full:
        return says
    places = "" if "/" in says[: full.start()] else f" ({' or '.join(_full_places(config))})"
    return f"{says}{places}: make space there, nothing is lost"


def _full_places(config: Config) -> list[str]:
    """Java does not say which file had no room: the places where a pipeline writes, of these the ones with least room."""
    local = config.run.spark.get("spark.local.dir") or os.environ.get("SPARK_LOCAL_DIRS") or "/tmp"
    places = [place for place in (config.run.checkpoint, config.store.path, str(local)) if place]
    free = {}
    for place in places:
        with suppress(OSError):
            free[place] = shutil.disk_usage(place).free
    full = [place for place, room in free.items() if room < 2**20]
    return full or places


def _batches(versions: StateVersions) -> list[int]:
    try:
        return versions.batches()
    except OSError:
        return []


_Method = TypeVar("_Method", bound=Callable[..., Any])


def explained(method: _Method) -> _Method:
    """A method of a pipeline that raises no exception of Spark's, but a LatelyError that says why in one sentence."""

    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(self, *args, **options)
        except SPARKS as error:
            raise LatelyError(f"the pipeline {self.config.name!r} failed: {_with_place(error, self.config)}") from error

    return cast(_Method, call)
