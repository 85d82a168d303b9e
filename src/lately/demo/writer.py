"""The process that plays the sites: ``python -m lately.demo.writer FOLDER START SEED SECONDS PARENT``.

At the end of every second it writes a file of what arrived in it. It ends after SECONDS (0 is never), or when PARENT, the
process that started it, has gone.
"""

import os
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from lately.demo.story import Story
from lately.demo.traffic import second


def write(folder: Path, number: int, seed: int, story: Story, start: int) -> Path:
    """Write the file of one second; it appears whole or not at all."""
    path, draft = folder / f"{number:08d}.parquet", folder / f".{number:08d}.draft"
    pq.write_table(second(number, seed, story).table(start), draft)
    os.replace(draft, path)
    return path


def main(folder: Path, start: int, seed: int, seconds: int, parent: int) -> None:
    """Write a file a second, in step with the clock; seconds that were slept through are made up for."""
    story, number = Story.of(seconds or None), 0
    while (not seconds or number < seconds) and os.getppid() == parent:
        wait = start + number + 1 - time.time()
        if wait > 0:
            time.sleep(min(wait, 0.5))
            continue
        write(folder, number, seed, story, start)
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(text) for text in sys.argv[2:6]))
