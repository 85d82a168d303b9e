"""Failures of Spark as one sentence: the deepest cause that has a message, without the words of Java and py4j around it.

    Py4JJavaError ─ "Job aborted" ─ … ─ "Caused by: java.io.IOException: No space left on device"
    PythonException ─ "Traceback …" ─ "KeyError: 'ts'"
                                        └─ this is the reason; the whole text goes into the log of the run

Mistakes in the pipeline file are found before anything runs, by ``analysis``; this is about failures of a run.
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

#: Exceptions of Spark and of py4j.
SPARKS = (PySparkException, Py4JError)
#: Longer sentences are shortened; the log has the whole text.
_MAX_LENGTH = 700

#: Errors of Spark that only say that there is another one.
_WRAPPERS = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "FAILED_READ_FILE.NO_HINT", "TASK_WRITE_FAILED")
_UNINFORMATIVE = (
    "Exception thrown in awaitResult",
    "Job aborted",
    "Task failed while writing",
    "An exception was raised by the",
)
_JAVA = re.compile(r"(?:Caused by: |: )?((?:[a-z_][\w$]*\.)+[A-Z][\w$]*)(?:: (.*))?$")
_LOST_TASK = re.compile(r"^Job aborted due to stage failure: .*?\(TID \d+\) \([^)]*\): ")
_PYTHON = re.compile(r"((?:\w+\.)*[A-Z]\w*)(?:: (.*))?$")
_FRAME = re.compile(r"\s+at |\s+\.\.\. \d+ |\s*Suppressed: ")
_END = re.compile(r"(== (SQL|DataFrame|Error|Progress)|JVM stacktrace|Driver stacktrace|=== Streaming Query ===)")
_FULL = re.compile("No space left on device|Disk quota exceeded|File too large")
_ERRNO = re.compile(r"\[Errno \d+\] (.+?): '(.+)'$")


class _Cause(NamedTuple):
    """One exception of a chain: its class, its error condition in Spark, its message."""

    class_name: str
    condition: str
    message: str

    @property
    def is_informative(self) -> bool:
        empty = self.message in ("", "null") or self.message.startswith(_UNINFORMATIVE)
        return not empty and not self.condition.startswith(_WRAPPERS)


# -- the reason --------------------------------------------------------------------------------------------------------


def reason(error: BaseException) -> str:
    """Say in one line why something failed: the deepest cause that Spark reports.

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
    message = _without_internals(_deepest(error))
    return message if len(message) <= _MAX_LENGTH else f"{message[:_MAX_LENGTH].rstrip()}…"


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
    if traced and (raised := _end_of_traceback(after)) is not None:
        return _of_python(*raised, before)
    own = text if isinstance(error, SPARKS) else ""
    head = [] if isinstance(error, Py4JError) else [_Cause(type(error).__name__, *_split(_paragraph(str(error).splitlines())))]
    first_line = next((line for line in text.splitlines() if line.strip()), "no reason")
    return _of_chain([*head, *_causes(own)]) or f"{type(error).__name__}: {first_line}"


def _of_python(class_name: str, message: str, after: str, before: str) -> str:
    """The reason from an exception of a Python worker, and from the Java stack traces after and before its traceback."""
    if class_name.startswith("py4j."):
        return _of_chain(_causes(after)) or _of_chain(_causes(before)) or message
    if class_name.startswith("lately."):
        return message
    if class_name.startswith("pyspark."):
        return _split(message)[1]
    if match := _ERRNO.match(message):
        return f"{match[2]}: {match[1]}"
    short_name = class_name.rpartition(".")[2]
    return f"{short_name}: {message}" if message else short_name


def _of_chain(causes: list[_Cause]) -> str:
    """The message of the deepest cause with an error condition of Spark, else with any message; and the file that was read."""
    informative = [cause for cause in causes if cause.is_informative]
    if not informative:
        return ""
    with_condition = [cause for cause in informative if cause.condition]
    chosen = (with_condition or informative)[-1]
    message = chosen.message
    if not chosen.condition and len(message.split()) <= 2:
        message = f"{chosen.class_name.rpartition('.')[2]}: {message}"
    for cause in causes:
        file = re.search(r"while reading file (\S+?)\.(?:\s|$)", cause.message)
        if file and file[1].rpartition("/")[2] not in message:
            return f"cannot read {file[1]}: {message}"
    return message


def _causes(text: str) -> list[_Cause]:
    """The exceptions in a Java stack trace, the outermost first."""
    causes = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = _JAVA.match(line)
        if match is None:
            continue
        class_name, message = match[1], _paragraph([match[2] or "", *lines[number + 1 :]])
        if (lost := _LOST_TASK.match(message)) and (inner := _JAVA.match(message[lost.end() :])):
            class_name, message = inner[1], inner[2] or ""
        causes.append(_Cause(class_name, *_split(message)))
    return causes


def _end_of_traceback(text: str) -> tuple[str, str, str] | None:
    """The exception at the end of a Python traceback: its class, its message, and the text after it."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line and not line[0].isspace() and (match := _PYTHON.match(line)):
            return match[1], _paragraph([match[2] or "", *lines[number + 1 :]]), "\n".join(lines[number + 1 :])
    return None


def _paragraph(lines: list[str]) -> str:
    """The lines of an exception's message, joined."""
    taken: list[str] = []
    for line in lines:
        if _FRAME.match(line) or _END.match(line) or line.startswith(("Caused by: ", ": ")) or (taken and not line.strip()):
            break
        if line.strip():
            taken.append(line.strip())
    return " ".join(taken)


def _split(message: str) -> tuple[str, str]:
    """Spark's error condition and the message, without the SQLSTATE and the plan after it."""
    match = re.match(r"\[([A-Z][A-Z0-9_.]*)\] (.*)", message)
    condition, rest = (match[1], match[2]) if match else ("", message)
    rest = re.sub(r"\s*SQLSTATE: \w{5}.*", "", rest)
    rest = re.sub(r" If necessary set \S+ to \S+ to bypass this error\.?| Please, refer to '\S+' for a fix\.?", "", rest)
    return condition, rest.strip().rstrip(".")


def _without_internals(message: str) -> str:
    """Remove lately's own names of columns and py4j's names of objects."""
    message = re.sub(r"(, )?`?_lately_\w+`?(?(1)|(, )?)", "", message)
    return re.sub(r"\bo\d+\.\w+", "Spark", message)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # py4j asks Java for it, which may have ended
        return type(error).__name__


def _whole_text(error: BaseException) -> str:
    """The text of an exception of Spark with its causes in Java, which ``str`` leaves out."""
    return "\n".join(part for part in (_text(error), getattr(error, "_stackTrace", None)) if part)


def details(error: BaseException) -> str | None:
    """Return the whole text of a failure, for a log.

    Parameters
    ----------
    error
        What was raised. The result is None if Spark was not involved, or if the message of the error says everything.
    """
    if isinstance(error, LatelyError) and type(error) is not LatelyError:
        return None
    chain: list[BaseException] = []
    cause = error.__cause__ if isinstance(error, LatelyError) else error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    if not any(isinstance(cause, SPARKS) for cause in chain):
        return None
    return "\n".join(["".join(traceback.format_exception(error)), *(_whole_text(cause) for cause in chain)]) + "\n"


# -- failures of a run -------------------------------------------------------------------------------------------------


@contextmanager
def in_batch(config: Config, number: int, versions: StateVersions) -> Iterator[None]:
    """Raise failures inside again with the number of the batch and the state from which the next run continues.

    Parameters
    ----------
    config
        The pipeline that runs, for the lines of its file.
    number
        The batch that runs inside.
    versions
        The versions of the state.
    """
    try:
        yield
    except LeaseError:  # its message says what happened to the state
        raise
    except (*SPARKS, OSError, LatelyError) as error:
        done = _batches(versions)
        if number in done:  # only upkeep and listeners come after it
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
    """Make the error of a stream that failed between batches: in its source, or in Spark's own log.

    Parameters
    ----------
    error
        What Spark raised.
    config
        The pipeline that ran.
    versions
        The versions of the state.
    """
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
    message = reason(error)
    full = _FULL.search(message)
    if not full:
        return message
    places = "" if "/" in message[: full.start()] else f" ({' or '.join(_full_places(config))})"
    return f"{message}{places}: make space there, nothing is lost"


def _full_places(config: Config) -> list[str]:
    """The places where a pipeline writes and that are full, or all of them; Java does not say which one was full."""
    local = config.run.spark.get("spark.local.dir") or os.environ.get("SPARK_LOCAL_DIRS") or "/tmp"
    places = [place for place in (config.run.checkpoint, config.store.path, str(local)) if place]
    free = {}
    for place in places:
        with suppress(OSError):
            free[place] = shutil.disk_usage(place).free
    full = [place for place, free_bytes in free.items() if free_bytes < 2**20]
    return full or places


def _batches(versions: StateVersions) -> list[int]:
    try:
        return versions.batches()
    except OSError:
        return []


_Method = TypeVar("_Method", bound=Callable[..., Any])


def explained(method: _Method) -> _Method:
    """Decorate a method of a pipeline: exceptions of Spark become LatelyErrors with the reason in one sentence."""

    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(self, *args, **options)
        except SPARKS as error:
            raise LatelyError(f"the pipeline {self.config.name!r} failed: {_with_place(error, self.config)}") from error

    return cast(_Method, call)
