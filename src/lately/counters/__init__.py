"""Sliding-window counters: one family per file, each an array of independent cells."""
