"""The knowledge language: the one place where people say what they know.

Knowledge is first-order and sorted: it declares sorts of objects, constants, predicates and functions, and states
axioms over them, such as ``∀x, y: Person. friends(x, y) ∧ smokes(x) → smokes(y)``. It says *what* holds; how truth is
computed and differentiated is chosen later. Text (:func:`parse`, :func:`load`) and Python operators build the same
immutable trees, and a :class:`KnowledgeBase` holds them, checked before anything runs.

An :class:`Interpretation` gives the symbols their meaning: networks, tensors, tables, functions, data. Grounding makes
a quantifier an axis of a tensor, and a semantics says what is done along it; the classical one, against which all
others are measured, is

    ⟦∀x: S. φ⟧ = min over s ∈ S of ⟦φ[x ↦ s]⟧,    ⟦φ → ψ⟧ = max(1 - ⟦φ⟧, ⟦ψ⟧),    ⟦x := f(t) (φ)⟧ = ⟦φ[x ↦ ⟦f(t)⟧]⟧.

Over finite sorts the same knowledge is propositional: :func:`ground`, :func:`to_cnf`, DIMACS, and :func:`entails`
through a SAT solver.
"""

# What a user calls is in __all__; names imported "as" themselves serve the other rooms.
from doxa.logic.bind._bindings import function, log_probs, logits, probs, table, trainable, values
from doxa.logic.bind._interpretation import Interpretation
from doxa.logic.bind._joint import autoregressive, mixture
from doxa.logic.bind._universe import Ragged
from doxa.logic.sat._cnf import CNF, read_dimacs, write_dimacs
from doxa.logic.sat._encode import to_cnf
from doxa.logic.sat._solve import all_models, count, entails, satisfiable
from doxa.logic.syntax._binders import (
    Aggregate,
    Count,
    Let,
    Quantifier,
    aggregate,
    at_least,
    at_most,
    exactly,
    exists,
    forall,
    fresh,
    leading_foralls,
    let,
    propositions,
    sample,
    variables,
    within,
)
from doxa.logic.syntax._define import Define, define
from doxa.logic.syntax._kb import Axiom, Fact, KnowledgeBase
from doxa.logic.syntax._symbols import INT, REAL, Constant, Function, Predicate, Rows, Sort
from doxa.logic.syntax._tree import (
    And,
    Arith,
    Call,
    Compare,
    Expr,
    Field,
    Iff,
    Implies,
    Index,
    Name,
    Not,
    Number,
    Or,
    Truth,
    Xor,
    postorder,
)
from doxa.logic.tensor._plan import truth
from doxa.logic.tensor._report import SatisfactionReport, satisfaction
from doxa.logic.text._parser import load, parse, parse_formula
from doxa.logic.unfold._proofs import Proof, proofs
from doxa.logic.unfold._propositional import ground

__all__ = [
    "CNF",
    "INT",
    "REAL",
    "Aggregate",
    "And",
    "Arith",
    "Axiom",
    "Call",
    "Compare",
    "Constant",
    "Count",
    "Define",
    "Expr",
    "Fact",
    "Field",
    "Function",
    "Iff",
    "Implies",
    "Index",
    "Interpretation",
    "KnowledgeBase",
    "Let",
    "Name",
    "Not",
    "Number",
    "Or",
    "Predicate",
    "Proof",
    "Quantifier",
    "Ragged",
    "Rows",
    "SatisfactionReport",
    "Sort",
    "Truth",
    "Xor",
    "aggregate",
    "all_models",
    "at_least",
    "at_most",
    "autoregressive",
    "count",
    "define",
    "entails",
    "exactly",
    "exists",
    "forall",
    "fresh",
    "function",
    "ground",
    "leading_foralls",
    "let",
    "load",
    "log_probs",
    "logits",
    "mixture",
    "parse",
    "parse_formula",
    "postorder",
    "probs",
    "proofs",
    "propositions",
    "read_dimacs",
    "sample",
    "satisfaction",
    "satisfiable",
    "table",
    "to_cnf",
    "trainable",
    "truth",
    "values",
    "variables",
    "within",
    "write_dimacs",
]
