"""``python -m lately`` is the ``lately`` command."""

from lately.cli import main

if __name__ == "__main__":
    main()
