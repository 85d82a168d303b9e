"""What a pipeline keeps, stores and reports, independent of the engine that runs it: nothing here mentions pyspark."""
