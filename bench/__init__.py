"""How fast, how small, how far off: one file per question. ``lately bench`` runs them; docs/bench.md explains them."""
