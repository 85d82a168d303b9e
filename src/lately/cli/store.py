"""``lately store``: what a store holds, whether it is sound, and how it is kept small."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from lately.cli import console, tables
from lately.cli.console import Json, print_json
from lately.cli.sources import store_errors
from lately.core.words import size
from lately.text_tables import plain, table_of, title

if TYPE_CHECKING:  # imported late, since the other commands need no store
    from lately.store.about import About

app = typer.Typer(help="Inspect, check and compact a store.", no_args_is_help=True)

Path = Annotated[str, typer.Argument(metavar="STORE", help="The [store] path of a pipeline file.")]


@app.command()
def show(store: Path, as_json: Json = False) -> None:
    """What a store holds: the pipeline, its queries, its sites, and the files of each table."""
    with store_errors():
        said = _facts(store)
    if as_json:
        print_json(said)
        return
    about: About = said["about"]
    facts = table_of(("name", "value"), header=False)
    versions = said["versions"]
    kept = f"{versions['count']:,}, newest {tables.when(versions['newest'])}" if versions["count"] else "none are stored"
    sites = said["sites"]
    for name, text in (
        (
            "newest batch",
            "none has finished" if said["batch"] is None else f"{said['batch']:,}, up to {tables.when(said['now'])}",
        ),
        ("window", about.window.length or "–"),
        ("queries", ", ".join(query.name for query in about.queries) or "–"),
        ("monitors", ", ".join(monitor.name for monitor in about.monitors) or "–"),
        ("sites", f"{len(sites):,}: {_some(sites)}" if sites else "–"),
        ("versions of sketches", kept),
        ("keeps", about.keep or "everything"),
    ):
        facts.add_row(name, plain(text))
    held = table_of(("table",), ("files", "size", "first batch", "last batch"))
    for name, one in said["tables"].items():
        ends = ("–" if one[end] is None else f"{one[end]:,}" for end in ("first", "last"))
        held.add_row(name, f"{one['files']:,}", size(one["bytes"]), *ends)
    console.show(title(f"{about.name}: {said['store']}"), facts, title("tables"), held)


def _facts(path: str) -> dict[str, Any]:
    from lately.store import Store
    from lately.store.view import View

    view, store = View(path), Store.open(path)
    versions = view.versions()
    held = {}
    for table in _tables():
        files = store.files(table)
        ends = {"first": files[0].first, "last": max(one.last for one in files)} if files else {"first": None, "last": None}
        held[table] = {"files": len(files), "bytes": sum(one.size for one in files), **ends}
    return {
        "store": path, "about": view.about, "batch": view.batch, "now": view.now, "sites": view.sites(),
        "versions": {"count": len(versions), "newest": versions[-1][1] if versions else None}, "tables": held,
    }  # fmt: skip


def _tables() -> list[str]:
    from lately.store import tables

    return list(tables())


def _some(names: list[str], most: int = 12) -> str:
    return ", ".join(name or "–" for name in names[:most]) + (", …" if len(names) > most else "")


@app.command()
def check(store: Path, as_json: Json = False) -> None:
    """Read every file and decode every sketch; exits with 1 if anything is damaged."""
    from lately.store.check import check as look

    with store_errors(), console.err.status(f"reading {store}"):
        found = look(store)
    if as_json:
        print_json({"store": store, "sound": not found.findings} | asdict(found))
    else:
        table = table_of(("table",), ("files", "rows", "sketches"))
        for name, one in found.tables.items():
            table.add_row(name, f"{one.files:,}", f"{one.rows:,}", f"{one.blobs:,}")
        console.show(title(f"what was read of {store}"), table)
        for finding in found.findings:
            console.show(Text("wrong: ", style="bold red") + plain(f"{finding.file}: {finding.wrong}"), soft_wrap=True)
        if not found.findings:
            console.show(Text("Everything is as it was written.", style="green"))
    if found.findings:
        raise typer.Exit(1)


@app.command()
def tidy(
    store: Path,
    keep: Annotated[
        str | None,
        typer.Option(metavar="LENGTH", help="Remove rows older than this, e.g. 7d; by default as in the pipeline file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Remove old rows and merge small files, as a running pipeline does from time to time."""
    from lately.store import Store, upkeep

    with store_errors(), console.err.status(f"tidying {store}"):
        opened = Store.open(store)
        done = upkeep.tidy(opened, _keep(keep, opened.about()))
    if as_json:
        print_json({"store": store} | asdict(done))
        return
    if done.merged or done.expired:
        print(f"{done.merged:,} small files became {done.into:,}; {done.expired:,} old ones are gone.")
    else:
        print("Nothing to do.")
    for name in done.unreadable:
        console.show(plain(f"{name} cannot be read and was left alone; run lately store check {store}"), soft_wrap=True)


def _keep(given: str | None, about: "About | None") -> str | int | None:
    """How long rows are kept: an integer where times are."""
    if given is None or about is None:
        return given if about is None else about.keep
    return int(given) if about.time_type == "integer" and given.isdecimal() else given
