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
        content = _facts(store)
    if as_json:
        print_json(content)
        return
    about: About = content["about"]
    facts = table_of(("name", "value"), header=False)
    versions = content["versions"]
    stored = f"{versions['count']:,}, newest {tables.when(versions['newest'])}" if versions["count"] else "none are stored"
    sites = content["sites"]
    for name, text in (
        (
            "newest batch",
            "none has finished" if content["batch"] is None else f"{content['batch']:,}, up to {tables.when(content['now'])}",
        ),
        ("window", about.window.length or "–"),
        ("queries", ", ".join(query.name for query in about.queries) or "–"),
        ("monitors", ", ".join(monitor.name for monitor in about.monitors) or "–"),
        ("sites", f"{len(sites):,}: {_some(sites)}" if sites else "–"),
        ("versions of sketches", stored),
        ("keeps", about.keep or "everything"),
    ):
        facts.add_row(name, plain(text))
    files = table_of(("table",), ("files", "size", "first batch", "last batch"))
    for name, counts in content["tables"].items():
        ends = ("–" if counts[end] is None else f"{counts[end]:,}" for end in ("first", "last"))
        files.add_row(name, f"{counts['files']:,}", size(counts["bytes"]), *ends)
    console.show(title(f"{about.name}: {content['store']}"), facts, title("tables"), files)


def _facts(path: str) -> dict[str, Any]:
    from lately.store import Store
    from lately.store.view import View

    view, store = View(path), Store.open(path)
    versions = view.versions()
    counts = {}
    for table in _tables():
        files = store.files(table)
        ends = {"first": files[0].first, "last": max(file.last for file in files)} if files else {"first": None, "last": None}
        counts[table] = {"files": len(files), "bytes": sum(file.size for file in files), **ends}
    return {
        "store": path, "about": view.about, "batch": view.batch, "now": view.now, "sites": view.sites(),
        "versions": {"count": len(versions), "newest": versions[-1][1] if versions else None}, "tables": counts,
    }  # fmt: skip


def _tables() -> list[str]:
    from lately.store import tables

    return list(tables())


def _some(names: list[str], most: int = 12) -> str:
    return ", ".join(name or "–" for name in names[:most]) + (", …" if len(names) > most else "")


@app.command()
def check(store: Path, as_json: Json = False) -> None:
    """Read every file and decode every sketch; exits with 1 if anything is damaged."""
    from lately.store.check import check as check_store

    with store_errors(), console.err.status(f"reading {store}"):
        result = check_store(store)
    if as_json:
        print_json({"store": store, "sound": not result.findings} | asdict(result))
    else:
        table = table_of(("table",), ("files", "rows", "sketches"))
        for name, counts in result.tables.items():
            table.add_row(name, f"{counts.files:,}", f"{counts.rows:,}", f"{counts.blobs:,}")
        console.show(title(f"what was read of {store}"), table)
        for finding in result.findings:
            console.show(Text("wrong: ", style="bold red") + plain(f"{finding.file}: {finding.wrong}"), soft_wrap=True)
        if not result.findings:
            console.show(Text("Everything is as it was written.", style="green"))
    if result.findings:
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


def _keep(option: str | None, about: "About | None") -> str | int | None:
    """The retention: the option, or that of the store; an integer where times are integers."""
    if option is None or about is None:
        return option if about is None else about.keep
    return int(option) if about.time_type == "integer" and option.isdecimal() else option
