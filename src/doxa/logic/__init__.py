"""The knowledge language: the one place where people say what they know.

Knowledge is first-order and sorted: it declares sorts of objects, constants, predicates and functions, and states
axioms over them, such as ``∀x, y: Person. friends(x, y) ∧ smokes(x) → smokes(y)``. It says *what* holds; how truth is
computed and differentiated is chosen later. Text (:func:`parse`, :func:`load`) and Python operators build the same
immutable trees, and a :class:`KnowledgeBase` holds them, checked before anything runs.

An :class:`Interpretation` gives the symbols their meaning: networks, tensors, tables, functions, data. Grounding makes
a quantifier an axis of a tensor, and a semantics says what is done along it; the classical one, against which all
others are measured, is

    ⟦∀x: S. φ⟧ = min over s ∈ S of ⟦φ[x ↦ s]⟧,    ⟦φ → ψ⟧ = max(1 - ⟦φ⟧, ⟦ψ⟧),    ⟦x := f(t) (φ)⟧ = ⟦φ[x ↦ ⟦f(t)⟧]⟧.

Over finite sorts the same knowledge is propositional: :func:`ground`, :func:`to_nnf`, :func:`to_cnf`, DIMACS, and
:func:`entails` through a SAT solver.
"""

from doxa.logic.bind._bindings import function, log_probs, logits, probs, table, trainable, values
from doxa.logic.bind._interpretation import Interpretation
from doxa.logic.bind._universe import Ragged
from doxa.logic.check._lint import lint
from doxa.logic.sat._cnf import CNF
from doxa.logic.sat._dimacs import read_dimacs, write_dimacs
from doxa.logic.sat._encode import to_cnf
from doxa.logic.sat._evaluate import evaluate
from doxa.logic.sat._nnf import to_nnf
from doxa.logic.sat._solve import Entailment, Solver, count, entails, models, satisfiable
from doxa.logic.syntax._binders import Group, Let, Quantifier, first_forall, leading_foralls
from doxa.logic.syntax._count import Count
from doxa.logic.syntax._diagnostics import Diagnostic, Span, raise_all
from doxa.logic.syntax._dsl import (
    at_least,
    at_most,
    exactly,
    exists,
    forall,
    fresh,
    let,
    propositions,
    sample,
    variables,
    within,
)
from doxa.logic.syntax._kb import Axiom, Fact, KnowledgeBase
from doxa.logic.syntax._simplify import atoms_of, simplify
from doxa.logic.syntax._symbols import INT, REAL, Constant, Function, Predicate, Rows, Signature, Sort
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
    as_expr,
)
from doxa.logic.syntax._walk import fold, intern, postorder
from doxa.logic.tensor._algebra import Accumulator, Algebra, Monoid
from doxa.logic.tensor._classical import CLASSICAL, Classical
from doxa.logic.tensor._plan import TensorPlan
from doxa.logic.tensor._readings import Reading, readings
from doxa.logic.tensor._report import AxiomReport, Report, satisfaction
from doxa.logic.tensor._truth import truth
from doxa.logic.text._parser import diagnose, load, parse, parse_formula
from doxa.logic.unfold._propositional import Propositional, ground

__all__ = [
    "CLASSICAL",
    "CNF",
    "INT",
    "REAL",
    "Accumulator",
    "Algebra",
    "And",
    "Arith",
    "Axiom",
    "AxiomReport",
    "Call",
    "Classical",
    "Compare",
    "Constant",
    "Count",
    "Diagnostic",
    "Entailment",
    "Expr",
    "Fact",
    "Field",
    "Function",
    "Group",
    "Iff",
    "Implies",
    "Index",
    "Interpretation",
    "KnowledgeBase",
    "Let",
    "Monoid",
    "Name",
    "Not",
    "Number",
    "Or",
    "Predicate",
    "Propositional",
    "Quantifier",
    "Ragged",
    "Reading",
    "Report",
    "Rows",
    "Signature",
    "Solver",
    "Sort",
    "Span",
    "TensorPlan",
    "Truth",
    "Xor",
    "as_expr",
    "at_least",
    "at_most",
    "atoms_of",
    "count",
    "diagnose",
    "entails",
    "evaluate",
    "exactly",
    "exists",
    "first_forall",
    "fold",
    "forall",
    "fresh",
    "function",
    "ground",
    "intern",
    "leading_foralls",
    "let",
    "lint",
    "load",
    "log_probs",
    "logits",
    "models",
    "parse",
    "parse_formula",
    "postorder",
    "probs",
    "propositions",
    "raise_all",
    "read_dimacs",
    "readings",
    "sample",
    "satisfaction",
    "satisfiable",
    "simplify",
    "table",
    "to_cnf",
    "to_nnf",
    "trainable",
    "truth",
    "values",
    "variables",
    "within",
    "write_dimacs",
]
