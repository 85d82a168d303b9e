"""The stream that ``lately demo`` shows: made-up web traffic at eight sites, through a local Spark, onto a dashboard."""
