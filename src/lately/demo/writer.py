"""The process that simulates the sites: ``python -m lately.demo.writer FOLDER START SEED SECONDS PARENT``.

At the end of every second it writes a file with the rows that arrived in it. It ends after SECONDS (0: never), or when PARENT,
the process that started it, has ended.
"""

import os
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from lately.demo.scenario import Scenario
from lately.demo.traffic import rows_of_second


def write(folder: Path, number: int, seed: int, scenario: Scenario, start: int) -> Path:
    """Write the file of one second, atomically.

    Parameters
    ----------
    folder
        Where the file goes.
    number
        The second, from 0.
    seed, scenario
        Those of the traffic.
    start
        The start of the stream, in seconds since 1970.
    """
    path, draft = folder / f"{number:08d}.parquet", folder / f".{number:08d}.draft"
    pq.write_table(rows_of_second(number, seed, scenario).table(start), draft)
    os.replace(draft, path)
    return path


def main(folder: Path, start: int, seed: int, seconds: int, parent: int) -> None:
    """Write one file per second by the clock; seconds that were missed are written at once."""
    scenario, number = Scenario.of(seconds or None), 0
    while (not seconds or number < seconds) and os.getppid() == parent:
        wait = start + number + 1 - time.time()
        if wait > 0:
            time.sleep(min(wait, 0.5))
            continue
        write(folder, number, seed, scenario, start)
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(text) for text in sys.argv[2:6]))
