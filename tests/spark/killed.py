"""Runs pipelines in a process of its own, each in a thread, to be killed at moments that tests aim at.

A plan is JSON: ``{"folder", "master", "ready", "fails": folder or null, "pipelines": [{"said", "stop", "at", "marker",
"broken"}]}``. Where ``stop`` says "after version" or "before version", the pipeline touches its marker at that moment of the
batch ``at`` and goes no further. A broken one keeps a single state that every batch overwrites, as one would think of it at
first. ``fails`` lets each task of two batches fail once: after its rows, or when all is done but told.
"""

import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

#: Batches whose tasks fail once; each failure costs a Python worker, which takes seconds to start.
FAILING = (1, 2)


def prepared(plan):
    """A pipeline that stops, breaks or fails as its plan says."""
    from lately.spark.pipeline import Pipeline

    pipeline = Pipeline.of(plan["said"])
    if plan.get("broken"):
        make_mutable(pipeline.versions)
    if plan.get("stop"):
        stop_at(pipeline.versions, plan["stop"], plan["at"], plan["marker"])
    return pipeline


def stop_at(versions, moment, batch, marker):
    """Touch the marker and sleep when this batch has written its version, or when it is about to."""
    write = versions.write

    def wrapped(version):
        if moment == "after version":
            write(version)
        if version.batch == batch:
            Path(marker).touch()
            time.sleep(600)
        if moment != "after version":
            write(version)

    versions.write = wrapped


def make_mutable(versions):
    """One current state, whatever the batch: nothing is known to be done already."""
    read, write, folder = versions.read, versions.write, Path(versions.path)

    def newest():
        found = sorted(path for path in folder.glob("*.json") if path.stem.isdigit())
        return int(found[-1].stem) if found else None

    def read_current(batch):
        return replace(read(newest()), batch=batch)

    def write_current(version):
        before = newest()
        write(replace(version, batch=version.batch if before is None else max(before, version.batch)))

    versions.read, versions.write, versions.batches, versions.tidy = read_current, write_current, list, lambda *_: None


def failing_once(grow, folder):
    """``grow`` with tasks each of which fails the first time: when it has seen all its rows, or when it has written all."""

    def grown(program, batch):
        run = grow(program, batch)

        def wrapped(batches):
            from pyspark import TaskContext

            task = TaskContext.get().partitionId()
            marker = Path(folder) / f"{batch.number}-{task}"
            told = []
            if marker.exists() or batch.number not in FAILING:
                yield from run(batches)
                return
            marker.touch()
            if (batch.number + task) % 2:
                list(batches)
            else:
                told += run(batches)
            raise OSError(f"task {task} of batch {batch.number} fails once, with {len(told)} reports")

        return wrapped

    return grown


def main(path):
    from lately.spark import pipeline as module
    from lately.spark.session import session

    with open(path) as file:
        plan = json.load(file)
    folder = tempfile.mkdtemp(dir=plan["folder"])
    spark = session(
        plan["master"],
        **{
            "spark.sql.shuffle.partitions": 2,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.local.dir": folder,
        },
    )
    if plan.get("fails"):
        os.makedirs(plan["fails"], exist_ok=True)
        module.grow = failing_once(module.grow, plan["fails"])
    Path(plan["ready"]).touch()
    threads = [threading.Thread(target=prepared(one).run, args=(spark,), daemon=True) for one in plan["pipelines"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1])
