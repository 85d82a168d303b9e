"""What everything stands on: errors, time, keys, estimates, sizing, bytes. No sketch knowledge, no Spark."""
