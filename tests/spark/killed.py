"""Runs pipelines in a process of its own, each in a thread, to be killed at moments that tests aim at.

A plan is JSON: ``{"folder", "master", "ready", "fails": folder or null, "pipelines": [{"config", "stop", "at", "marker",
"broken", "outcome"}]}``. Where ``stop`` names a moment (see ``MOMENTS``), the pipeline touches its marker at that moment of the
batch ``at`` and waits until there is a file ``<marker> go``. A broken one keeps a single state that every batch overwrites, as
one would think of it at first, and no fence. ``fails`` lets each task of two batches fail once: after its rows, or when all is
done but told. How a run ended is written to ``outcome``: the name of its error and what that says, or null.
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

    pipeline = Pipeline.of(plan["config"])
    if plan.get("broken"):
        make_mutable(pipeline.versions)
        pipeline._guard.protect = lambda *_, **__: None
    if plan.get("stop"):
        stop_at(pipeline, plan["stop"], plan["at"], plan["marker"])
    return pipeline


def run(plan, spark):
    """Run a pipeline as its plan says, and note how that ended."""
    failed = None
    try:
        prepared(plan).run(spark)
    except Exception as error:
        failed = [type(error).__name__, str(error)]
    if failed is not None and plan.get("stop") and not Path(plan["marker"]).exists():
        print(*failed, flush=True)
        os._exit(1)  # a test waits for the marker, which will never be there
    if plan.get("outcome"):
        Path(f"{plan['outcome']}.new").write_text(json.dumps(failed))
        os.rename(f"{plan['outcome']}.new", plan["outcome"])
    elif failed is not None:
        print(*failed, flush=True)


#: When a batch can be stopped: the method of the pipeline, its store or its versions, on which side of it, and which batch its
#: arguments are about.
MOMENTS = {
    "logged": ("", "_process", "before", lambda rows, batch, stream: batch),  # Spark has logged the batch, and hands it over
    "cleared": ("store", "clear", "after", lambda batch: batch),
    "before version": ("versions", "write", "before", lambda version, *_: version.batch),
    "after version": ("versions", "write", "after", lambda version, *_: version.batch),
}


def stop_at(pipeline, moment, batch, marker):
    """Touch the marker at this moment of this batch, and wait for leave to go on."""
    owner, name, side, number = MOMENTS[moment]
    owner = getattr(pipeline, owner) if owner else pipeline
    method = getattr(owner, name)

    def wrapped(*args):
        if side == "after":
            method(*args)
        if number(*args) == batch and not Path(marker).exists():
            Path(marker).touch()
            while not Path(f"{marker} go").exists():
                time.sleep(0.02)
        if side == "before":
            method(*args)

    setattr(owner, name, wrapped)


def make_mutable(versions):
    """One current state, whatever the batch: nothing is known to be done already."""
    read, write, folder = versions.read, versions.write, Path(versions.path)

    def newest():
        versions_on_disk = sorted(path for path in folder.glob("*.json") if path.stem.isdigit())
        return int(versions_on_disk[-1].stem) if versions_on_disk else None

    def read_current(batch):
        return replace(read(newest()), batch=batch)

    def write_current(version, *_):
        before = newest()
        number = version.batch if before is None else max(before, version.batch)
        (folder / f"{number:012d}.json").unlink(missing_ok=True)
        write(replace(version, batch=number))

    versions.read, versions.write, versions.batches, versions.tidy = read_current, write_current, list, lambda *_: None


def failing_once(run_task, folder):
    """``run_task`` with tasks each of which fails the first time: when it has seen all its rows, or when it has written all."""

    def failing(plan, task_input):
        run = run_task(plan, task_input)

        def wrapped(batches):
            from pyspark import TaskContext

            task = TaskContext.get().partitionId()
            marker = Path(folder) / f"{task_input.number}-{task}"
            reports = []
            if marker.exists() or task_input.number not in FAILING:
                yield from run(batches)
                return
            marker.touch()
            if (task_input.number + task) % 2:
                list(batches)
            else:
                reports += run(batches)
            raise OSError(f"task {task} of batch {task_input.number} fails once, with {len(reports)} reports")

        return wrapped

    return failing


def main(path):
    from lately.spark import micro_batch as module
    from lately.spark.session import session

    with open(path) as file:
        plan = json.load(file)
    folder = tempfile.mkdtemp(dir=plan["folder"])
    spark = session(
        plan["master"],
        **{
            "spark.sql.shuffle.partitions": 2,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.local.dir": folder,
            # Spark's own, whose files a killed process leaves behind.
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
            ),
        },
    )
    if plan.get("fails"):
        os.makedirs(plan["fails"], exist_ok=True)
        module.run_task = failing_once(module.run_task, plan["fails"])
    Path(plan["ready"]).touch()
    threads = [threading.Thread(target=run, args=(one, spark), daemon=True) for one in plan["pipelines"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1])
