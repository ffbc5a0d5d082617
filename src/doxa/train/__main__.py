"""``python -m doxa.train``: the demo, MNIST addition under five semantics from one knowledge file."""

from __future__ import annotations

from doxa.train._demo import main

if __name__ == "__main__":
    main()
