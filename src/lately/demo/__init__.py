"""``lately demo``: synthetic web traffic at eight sites, a pipeline on a local Spark, and a dashboard."""
