"""Spark's daemon of Python workers without two costs of every task, which are most of the time of a short one.

Before each task a worker calls ``importlib.invalidate_caches``. Spark puts archives on the path of its workers, such as
``pyspark.zip``, and Python 3.11 then reads their directories again, once for every package imported from them (50 ms). Here
PySpark is imported from where it is installed. After each task a worker calls ``gc.collect``, which visits all objects that
modules made when they were imported (25 ms). Here those are frozen: collections visit only what tasks have left.
"""

import gc
import importlib.machinery
import runpy
import sys

collect_all = gc.collect
modules = 0


def collect(*args: int) -> int:
    """Collect garbage, and freeze what is left if modules were imported since the last call."""
    global modules
    collected = collect_all(*args)
    if len(sys.modules) > modules:
        modules = len(sys.modules)
        gc.freeze()
    return collected


if __name__ == "__main__":
    folders = [place for place in sys.path if not place.endswith((".zip", ".jar"))]
    if importlib.machinery.PathFinder.find_spec("pyspark", folders) is not None:
        sys.path[:] = folders
        sys.path_importer_cache.clear()
    gc.collect = collect
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
