r"""Posing: knowledge, an interpretation and data become batches of equal problems.

An axiom ``forall p in pairs. φ(p)`` asks the same question of every row. What networks say about a row are random
variables w, independent given the data; what the data decide is given, k; and the question is how probable it is that
φ holds:

.. math:: p(φ) = \sum_w p(w)\, [φ(w, k)], \qquad p(w) = \prod_i p(w_i).

Where symbols share a mixture (:func:`doxa.mixture`), each row has one of its components, and they are independent given
that: :math:`p(w) = \sum_k π_k \prod_i p_k(w_i)`.

`pose` unfolds the formula once for all rows that look alike, and returns them as `ProblemBatch`\ es: a
`doxa.problem.Problem`, the belief, what is given, and the outputs under which the axiom holds. Every engine that
reasons with probabilities starts from there.
"""

from doxa.pose._pose import PosedAxiom, ProblemBatch, pose

__all__ = ["PosedAxiom", "ProblemBatch", "pose"]
