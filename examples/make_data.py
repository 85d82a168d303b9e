"""Small made-up data for the pipelines beside this file: ``python examples/make_data.py``, then

    lately run examples/weblogs/pipeline.toml
    lately run examples/trades/pipeline.toml
    lately run examples/flows/pipeline.toml

from the top folder of the source. The same files every time.
"""

import csv
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
START = datetime(2026, 6, 1, 9, tzinfo=UTC)


def weblogs(folder: Path, rows: int = 20_000) -> None:
    """Half an hour of three web servers, in the format that Apache calls vhost_combined, with the seconds taken at the end."""
    rng = np.random.default_rng(1)
    paths = ["/", "/search", "/cart", "/checkout", "/thanks", *(f"/item/{number}" for number in range(500))]
    weights = 1 / (3.0 + np.arange(len(paths)))
    for host, share in (("paris", 0.5), ("tokyo", 0.3), ("lima", 0.2)):
        size = round(rows * share)
        seconds = np.sort(rng.integers(0, 1800, size)).tolist()
        wanted = rng.choice(len(paths), size, p=weights / weights.sum()).tolist()
        taken = rng.lognormal(-3, 0.8, size).tolist()
        status = rng.choice([200, 304, 404, 500], size, p=[0.9, 0.07, 0.025, 0.005]).tolist()
        lines = []
        for second, path, code, took in zip(seconds, wanted, status, taken, strict=True):
            at = (START + timedelta(seconds=second)).strftime("%d/%b/%Y:%H:%M:%S +0000")
            client = f"203.0.113.{second % 250}"
            lines.append(f'{host}.example:443 {client} - - [{at}] "GET {paths[path]}?ref=mail HTTP/1.1" {code} 5123 {took:.3f}')
        (folder / f"{host}.log").write_text("\n".join(lines) + "\n")


def trades(folder: Path, rows: int = 20_000) -> None:
    """Half an hour of trades of forty shares at two exchanges; a few of them become busy towards the end."""
    rng = np.random.default_rng(2)
    symbols = [f"{first}{second}X" for first in "ABCDE" for second in "KLMNOPQR"]
    weights = 1 / (1.0 + np.arange(len(symbols)))
    prices = rng.uniform(5, 400, len(symbols))
    seconds = np.sort(rng.integers(0, 1800, rows))
    chosen = rng.choice(len(symbols), rows, p=weights / weights.sum())
    rush = (seconds > 1500) & (rng.random(rows) < 0.3)
    chosen[rush] = symbols.index("EOX")
    moved = 1 + np.cumsum(rng.normal(0, 0.0002, rows))
    shares = np.ceil(rng.lognormal(4.5, 1, rows)).astype(int)
    files = {}
    for name in ("north", "south"):
        files[name] = open(folder / f"{name}.csv", "w", newline="")  # noqa: SIM115
        csv.writer(files[name]).writerow(["ts", "exchange", "symbol", "price", "shares"])
    for second, symbol, move, amount in zip(seconds.tolist(), chosen.tolist(), moved.tolist(), shares.tolist(), strict=True):
        at = (START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")
        exchange = ("north", "south")[(second + symbol) % 3 == 0]
        csv.writer(files[exchange]).writerow([at, exchange, symbols[symbol], f"{prices[symbol] * move:.2f}", amount])
    for file in files.values():
        file.close()


def flows(folder: Path, rows: int = 20_000) -> None:
    """Ten minutes of flows at four routers, times as whole seconds; towards the end many machines look for open ports."""
    rng = np.random.default_rng(3)
    usual = [443, 80, 53, 22, 25, 123, 993, 3306, 5432, 8080]
    second = np.sort(rng.integers(0, 600, rows))
    port = np.where(rng.random(rows) < 0.8, rng.choice(usual, rows), rng.integers(1024, 65_536, rows))
    scan = (second > 480) & (rng.random(rows) < 0.4)
    port[scan] = 2323
    router = rng.integers(0, 4, rows)
    packets = np.ceil(rng.pareto(1.2, rows) * 3).clip(1, 100_000).astype(int)
    for part, at in enumerate(np.array_split(np.arange(rows), 3)):
        with open(folder / f"{part}.json", "w") as file:
            for row in at.tolist():
                one = {
                    "at": int(second[row]),
                    "router": f"r{router[row]}",
                    "port": int(port[row]),
                    "packets": int(packets[row]),
                }
                file.write(json.dumps(one) + "\n")


MAKERS = {maker.__name__: maker for maker in (weblogs, trades, flows)}


def main(top: Path = HERE) -> None:
    """Make all of it in the folders of the pipelines under ``top``."""
    for name, maker in MAKERS.items():
        folder = top / name / "data"
        folder.mkdir(parents=True, exist_ok=True)
        maker(folder)
        print(f"{folder}: {sum(path.stat().st_size for path in folder.iterdir()) / 1024:,.0f} KiB")


if __name__ == "__main__":
    main(*(Path(text) for text in sys.argv[1:2]))
