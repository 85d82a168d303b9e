"""The first rows of a pipeline wait for a lot: Java loads classes, workers start, kernels are loaded or, once, compiled."""

import shutil
from pathlib import Path
from typing import Any

from lately.demo.asks import pipeline
from lately.demo.story import Story
from lately.demo.writer import write
from lately.spark.pipeline import Pipeline

#: Seconds further apart than rows may be late, so that none of them is held back to the end.
_SECONDS = (0, 6, 12)
#: Something for the monitors to talk about.
_STORY = Story(crowd=0, attack=1)


def warm(spark: Any, folder: Path) -> None:
    """Send some traffic through a pipeline like the demo's, so that the demo's own need not wait; none of it stays."""
    content = pipeline(str(folder))
    content["source"] |= {"mode": "available-now", "options": {"maxFilesPerTrigger": 1}}
    events = folder / "events"
    events.mkdir(parents=True)
    for number in _SECONDS:
        write(events, number, 0, _STORY, 1_780_000_000)
    Pipeline.of(content).run(spark)
    shutil.rmtree(folder)
