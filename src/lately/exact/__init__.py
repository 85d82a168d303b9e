"""Exact windows that thousands of queries share."""
