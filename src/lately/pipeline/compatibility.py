"""What a later run must agree with to continue the state of an earlier one: queries and monitors, and notes about changes."""

from typing import Any

from lately.config import Exact, MonitorTable
from lately.core.errors import ParameterError

#: The remedy where the whole state depends on what was changed.
CHANGE_BACK = "start over with another [run] checkpoint, or change it back"
_RENAME = "give it another name to start it empty, or change it back"


def query_notes(current: dict[str, Any], earlier: dict[str, Any]) -> list[str]:
    """Return notes about new queries; ParameterError if a query with the same name needs other state.

    Parameters
    ----------
    current, earlier
        ``PipelinePlan.compatibility()`` of this run and of the one that wrote the state.
    """
    notes = []
    existing = {name for names in earlier["queries"].values() for name in names}
    for name, spec_names in current["queries"].items():
        before = earlier["queries"].get(name)
        if before is not None and before != spec_names:
            raise ParameterError(
                f"the query {name!r} needs {' and '.join(spec_names)}; its state has {' and '.join(before)}",
                remedy="give the query another name to start it empty, or change it back",
            )
        if before is None:
            has_state = all(spec in existing for spec in spec_names) and name not in current["exact"]
            notes.append(f"query {name!r} is new and " + ("uses existing state" if has_state else "counts from now on"))
    for name, record in current["exact"].items():
        if earlier["exact"].get(name, record) != record:
            raise ParameterError(f"the exact query {name!r} has changed", remedy=_RENAME)
    return notes


def monitor_notes(current: dict[str, Any], earlier: dict[str, Any]) -> list[str]:
    """Return notes about new monitors; ParameterError if a monitor has changed.

    Parameters
    ----------
    current, earlier
        The records of the monitors of this run and of the one that wrote the state, by name.
    """
    for name, record in current.items():
        if earlier.get(name, record) != record:
            raise ParameterError(f"the monitor {name!r} has changed", remedy=_RENAME)
    return [f"monitor {name!r} is new and starts now" for name in current if name not in earlier]


def monitor_record(settings: MonitorTable) -> dict[str, Any]:
    """Return a monitor as its file has it, without ``below`` where it is not given: states of older versions do not have it."""
    return settings.model_dump(mode="json", exclude={"below"} if settings.below is None else None)


def exact_record(query: Exact) -> dict[str, Any]:
    """Return what must not change in an exact query; its name and ``by`` may."""
    return query.model_dump(mode="json", exclude={"name", "by"})
