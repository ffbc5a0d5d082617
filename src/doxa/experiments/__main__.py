"""``python -m doxa.experiments``."""

from __future__ import annotations

from doxa.experiments._digits import main

if __name__ == "__main__":
    main()
