"""Circuits: formulas in which counting is easy, by hand, from clauses or from files.

>>> two_of_four = cardinality(4, 2, 2)
>>> two_of_four.count()
6
"""

from doxa.exact.circuits._circuit import Circuit, CircuitBuilder, cardinality, chain, exactly_one, machine
from doxa.exact.circuits._compiler import compile_cnf
from doxa.exact.circuits._files import read_nnf, write_nnf
from doxa.exact.circuits._kernel import native_kernel
from doxa.exact.circuits._layers import weigh

__all__ = [
    "Circuit",
    "CircuitBuilder",
    "cardinality",
    "chain",
    "compile_cnf",
    "exactly_one",
    "machine",
    "native_kernel",
    "read_nnf",
    "weigh",
    "write_nnf",
]
