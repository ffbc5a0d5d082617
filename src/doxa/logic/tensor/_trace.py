"""What happened in a run, for people."""

from __future__ import annotations

__all__ = ["Trace"]


class Trace:
    """What happened in a run, for people: the frame of each block, the tables, and the calls of networks."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.roots: list[tuple[str, list[str]]] = []
        self.tables: dict[str, tuple[int, ...]] = {}
        self.calls: list[tuple[str, tuple[tuple[int, ...], ...]]] = []

    def root(self, names: list[str]) -> None:
        """Begin with another formula, or stack of formulas."""
        title = names[0] if len(names) == 1 else f"{len(names)} formulas of one shape, such as {names[0]}"
        self.blocks = []
        self.roots.append((title, self.blocks))

    def block(self, label: str, axes: list[tuple[str, int]], tiles: int, note: str) -> None:
        """Note a block that was run, with the length of each of its axes."""
        if axes:
            parts = ", ".join([f"{name} {size}" for name, size in axes])
            self.blocks.append(f"  {label}: {parts}, {tiles} tile{'s' if tiles != 1 else ''}{note}")

    def lines(self) -> list[str]:
        """What happened: per formula the blocks that were run, the outermost first; tables; calls of networks."""
        found = [line for title, blocks in self.roots for line in [title, *reversed(blocks)]]
        if self.tables:
            shown = [f"{name} {'x'.join(map(str, shape)) or 'one'}" for name, shape in self.tables.items()]
            found.append("tables: " + ", ".join(shown))
        return found + [f"{name} runs on {', '.join([str(s) for s in shapes])}" for name, shapes in self.calls]
