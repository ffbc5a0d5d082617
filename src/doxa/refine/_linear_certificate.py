"""Multipliers that certify a projection: non-negative least squares, for many points at once."""

from __future__ import annotations

import torch
from torch import Tensor


def multipliers(rows: Tensor, equality: Tensor, tight: Tensor, move: Tensor) -> Tensor:
    r"""λ with the smallest :math:`‖\mathrm{move} - \mathrm{rows}^⊤ λ‖`, 0 where not tight, ≥ 0 but for equalities.

    Lawson and Hanson 1974, "Solving least squares problems", ch. 23: from λ = 0, the row whose multiplier would help
    most is let in and the least-squares problem solved; rows whose multipliers would fall below 0 are put out again.

    Args:
        rows: ``(rows, values)``.
        equality: ``(rows)``: which multipliers are free.
        tight: ``(points, rows)``: which may be other than 0.
        move: ``(points, values)``.
    """
    count = len(rows)
    if not count or not len(move):
        return move.new_zeros(len(move), count)
    length = rows.norm(dim=1)
    unit = rows / torch.where(length > 0, length, 1.0).unsqueeze(1)
    size = move.norm(dim=1).clamp_min(1e-300)
    target = move / size.unsqueeze(1)
    inside = tight & equality
    current = _least_squares(unit, inside, target)
    running = torch.ones(len(move), dtype=torch.bool, device=move.device)
    for _ in range(3 * count + 10):
        gain = (target - current @ unit) @ unit.T
        gain = torch.where(tight & ~inside & ~equality, gain, -torch.inf)
        best, row = gain.max(1)
        running = running & (best > 1e-14)
        if not bool(running.any()):
            break
        inside = inside | (running.unsqueeze(1) & (torch.arange(count, device=move.device) == row.unsqueeze(1)))
        for _ in range(count + 1):
            wanted = _least_squares(unit, inside, target)
            falls = inside & ~equality & (wanted <= 0) & running.unsqueeze(1)
            if not bool(falls.any()):
                break
            share = torch.where(falls, current / (current - wanted).clamp_min(1e-300), torch.inf)
            part = share.amin(1).clamp(0, 1)
            some = falls.any(1)
            moved = current + torch.where(some, part, 0.0).unsqueeze(1) * (wanted - current)
            out = falls & (share <= part.unsqueeze(1))
            inside = inside & ~out
            current = torch.where(some.unsqueeze(1), torch.where(inside, moved, 0.0), current)
        current = torch.where(running.unsqueeze(1), torch.where(inside, wanted, 0.0), current)
    current = torch.where(equality, current, current.clamp_min(0))
    found: Tensor = current * size.unsqueeze(1) / torch.where(length > 0, length, 1.0)
    return found


def _least_squares(rows: Tensor, inside: Tensor, target: Tensor) -> Tensor:
    """λ with the smallest ‖target - rowsᵀ λ‖ over the rows inside; of several, the shortest."""
    chosen = torch.where(inside.unsqueeze(2), rows, 0.0)
    inverse: Tensor = torch.linalg.pinv(chosen.transpose(1, 2), rtol=1e-12)
    return (inverse @ target.unsqueeze(2)).squeeze(2)
