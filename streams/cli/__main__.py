"""``python -m onceward.streams.cli``: the command ``onceward`` without its script."""

from .main import main

if __name__ == "__main__":
    raise SystemExit(main())
