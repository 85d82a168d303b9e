"""Watching streams at many sites: who says what to whom, and when. Nothing here opens a connection."""
