"""Runs a small pipeline first: Java loads classes, Python workers start, and kernels are loaded or compiled."""

import shutil
from pathlib import Path
from typing import Any

from lately.demo.pipeline_file import pipeline_file
from lately.demo.scenario import Scenario
from lately.demo.writer import write
from lately.spark.pipeline import Pipeline

#: Seconds of traffic, further apart than rows may be late, so that none of them is held back until the end.
_SECONDS = (0, 6, 12)
#: With an attack, so that the monitors exchange messages.
_SCENARIO = Scenario(rush=0, attack=1)


def warm_up(spark: Any, folder: Path) -> None:
    """Run a pipeline like the demo's over some traffic, so that the first batch of the demo is fast.

    Parameters
    ----------
    spark
        The Spark session.
    folder
        Where the pipeline keeps its files. It is removed afterwards.
    """
    content = pipeline_file(str(folder))
    content["source"] |= {"mode": "available-now", "options": {"maxFilesPerTrigger": 1}}
    events = folder / "events"
    events.mkdir(parents=True)
    for number in _SECONDS:
        write(events, number, 0, _SCENARIO, 1_780_000_000)
    Pipeline.of(content).run(spark)
    shutil.rmtree(folder)
