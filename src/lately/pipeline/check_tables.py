"""An explanation of a pipeline as tables, which ``lately run --check`` prints."""

from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from lately.core.words import size
from lately.store.upkeep import VERSIONS
from lately.text_tables import plain, table_of, title

_SIZES = ("empty_bytes", "bytes", "stored_bytes")


def check_tables(explanation: dict[str, Any]) -> list[RenderableType]:
    """Return the tables and texts to print.

    Parameters
    ----------
    explanation
        What ``explain`` returns.
    """
    parts: list[RenderableType] = [title(f"{explanation['name']}: no mistakes found"), _overview(explanation)]
    parts += [title("sent to Python for each row"), _row_columns(explanation), title("state of each site"), _state(explanation)]
    parts.append(Text(f"Sizes were {explanation['measured']}."))
    if explanation["queries"]:
        parts += [title("queries"), _queries(explanation["queries"])]
    if explanation["monitors"]:
        parts += [title("monitors"), _monitors(explanation["monitors"])]
    merged = dict.fromkeys(
        f"{state['class']} {state['options']['eps']:g} to {state['merged_eps']:.3g}"
        for state in explanation["state"]
        if state["merged_eps"]
    )
    if merged:
        parts.append(
            Text(
                "Answers over all sites have no merge error: sites send their counts of the range. If you merge stored "
                f"sketches of sites yourself, in one step, eps becomes larger: {', '.join(merged)}."
            )
        )
    return parts


def _overview(explanation: dict[str, Any]) -> Table:
    source, window, output = explanation["source"], explanation["window"], explanation["output"]
    where = source["path"] or ", ".join(f"{name}={value}" for name, value in source["options"].items())
    keep = output["keep"]
    state = f"in {output['state']}; {output['description']}" if output["state"] else output["description"]
    table = table_of(("name", "value"), header=False)
    for name, text in (
        ("source", f"{source['format']} {where}, {source['mode']}: {source['description']}"),
        ("window", f"{window['length']}, in ticks of {window['tick']}"),
        ("lateness", window["description"]),
        ("store", f"{output['store']}: {', '.join(output['tables'])}; sketches are {output['sketches']}"),
        (
            "retention",
            f"unlimited; the last {VERSIONS} versions of sketches" if keep is None else f"{keep} of the stream's time",
        ),
        ("state", state),
        ("Spark", output["master"] or "as configured on this machine, else local"),
    ):
        table.add_row(name, plain(text))
    return table


def _row_columns(explanation: dict[str, Any]) -> Table:
    table = table_of(("column", "size", "from"))
    for column in explanation["row_columns"]:
        table.add_row(column["column"], column["type"], plain(column["from"]))
    return table


def _state(explanation: dict[str, Any]) -> Table:
    table = table_of(("sketch", "rows", "queries"), ("empty", f"{explanation['arrivals']:,} arrivals", "stored"))
    for state in explanation["state"]:
        options = ", ".join(f"{name}={value}" for name, value in state["options"].items())
        table.add_row(
            plain(f"{state['class']}({options})" if options else state["class"]),
            plain(state["where"] or "all"),
            plain(", ".join(state["queries"])),
            *(size(state[name]) for name in _SIZES),
        )
    table.add_section()
    table.add_row("total", "", "", *(size(explanation["site"][name]) for name in _SIZES))
    return table


def _queries(queries: list[dict[str, Any]]) -> Table:
    table = table_of(("query", "question", "last", "sites", "error"))
    for query in queries:
        sites = "each" if query["by"] == "site" else "all"
        table.add_row(*(plain(text) for text in (query["name"], query["question"], query["last"], sites, query["error"])))
    return table


def _monitors(monitors: list[dict[str, Any]]) -> Table:
    table = table_of(("monitor", "value", "last", "scheme", "tolerance"))
    for monitor in monitors:
        table.add_row(*(plain(monitor[name]) for name in ("name", "value", "last", "scheme", "description")))
    return table
