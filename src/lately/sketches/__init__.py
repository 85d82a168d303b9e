"""What answers questions over keys."""
