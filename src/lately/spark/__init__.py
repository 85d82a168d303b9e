"""lately on Spark: functions for SQL and columns, sketches of DataFrames and files, and pipelines.

import lately.spark

spark = lately.spark.session()                                      # Java is found, or brought along
sites = lately.spark.sketch(df, key="url", time="ts", by="site", window="1h", eps=0.01, delta=0.01)
lately.spark.register(spark)                                        # SELECT ecm_count(sketch, '/cart', '10m') …
lately.spark.Pipeline.from_file("pipeline.toml").run()
"""

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError(f"lately.spark needs Spark ({error}); run pip install 'lately[spark]'") from error

from lately.pipeline.batch_report import BatchReport
from lately.spark import functions
from lately.spark.files import sketch_files
from lately.spark.frames import merge, sketch
from lately.spark.functions import register
from lately.spark.pipeline import Pipeline
from lately.spark.session import session

__all__ = ["BatchReport", "Pipeline", "functions", "merge", "register", "session", "sketch", "sketch_files"]
