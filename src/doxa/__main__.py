"""``python -m doxa``, the same as ``doxa``."""

from doxa.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
