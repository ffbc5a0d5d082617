"""Formulas as one function of their tables, recorded on tensors without content and given to ``torch.compile``.

What depends on the content of data (guards, rows, relations listed by name) cannot be recorded, and runs as usual.
"""

from __future__ import annotations

import operator
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from doxa.errors import ConfigError
from doxa.logic.tensor._algebra import Algebra
from doxa.logic.tensor._execute import Root
from doxa.logic.tensor._pools import Pool
from doxa.logic.tensor._run import Run, Source

FUNCTIONS = 8
"""Cache size: functions for different numbers of objects."""


class NotTraceable(Exception):
    """A formula looks at the content of data."""


class Traced:
    """The formulas of a program as compiled functions, one for each combination of sizes that comes."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self.refused: dict[Root, str] = {}
        """Formulas that run as usual, and why."""
        self._roots = list(roots)
        self._found: list[Function] = []

    def run(self, run: Run) -> dict[Root, Tensor]:
        found = next((f for f in self._found if f.fits(run)), None)
        if found is None:
            recorded = self._record(run)
            if not recorded:
                return {}
            if run.device.type == "cpu":
                _require_compiler()
            found = Function(recorded, run)
            self._found = [*self._found[1 - FUNCTIONS :], found]
        return dict(zip(found.roots, found(run), strict=True))

    def lines(self) -> list[str]:
        """What is compiled and what is not, for people."""
        compiled = [name for root in self._roots if root not in self.refused for name in root.names]
        found = ["compiled: " + ", ".join(compiled)] if compiled else []
        return found + [f"not compiled: {', '.join(root.names)} ({why})" for root, why in self.refused.items()]

    def _record(self, run: Run) -> list[Root]:
        good = []
        for root in self._roots:
            if root not in self.refused:
                root.value(run)  # so that all tables are there: networks do not run while operations are recorded
                try:
                    Function([root], run)
                    good.append(root)
                except NotTraceable as reason:
                    self.refused[root] = str(reason)
        return good


def _require_compiler() -> None:
    compiler = os.environ.get("CXX") or {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    if shutil.which(compiler) is None:
        raise ConfigError(
            f"compile=True needs the C++ compiler {compiler!r}, which was not found; install it, or name another one "
            "in the environment variable CXX, or leave compile out"
        )


class Function:
    """Formulas recorded for fixed sizes and compiled."""

    def __init__(self, roots: list[Root], run: Run) -> None:
        self.roots = roots
        with FakeTensorMode(allow_non_fake_inputs=True) as fake, Recorder() as recorder:
            sizes = _SizesOnly(run, recorder, fake)
            outputs = [root.value(sizes) for root in roots]
        self._sources = sizes.inputs
        self._sizes = dict(sizes.asked)
        self._shapes = [run.table(*source).shape for source in self._sources]
        module = recorder.module(outputs)
        self._call: Callable[..., tuple[Tensor, ...]] = torch.compile(module, dynamic=False, fullgraph=True)

    def fits(self, run: Run) -> bool:
        return all(run.size(pool) == size for pool, size in self._sizes.items()) and self._shapes == [
            run.table(*source).shape for source in self._sources
        ]

    def __call__(self, run: Run) -> tuple[Tensor, ...]:
        return self._call(*[run.table(*source) for source in self._sources])


class _SizesOnly(Run):
    """A run that knows how many objects there are; its tables have no content, and are arguments of the function."""

    def __init__(self, real: Run, recorder: Recorder, fake: FakeTensorMode) -> None:
        super().__init__(real.batch, real.needs, 2**62)
        self.asked: dict[Pool, int] = {}
        self.inputs: list[tuple[Source, Algebra]] = []
        self._real, self._recorder, self._fake = real, recorder, fake

    def size(self, pool: Pool) -> int:
        self.asked[pool] = self._real.size(pool)
        return self.asked[pool]

    def dtype(self, algebra: Algebra) -> torch.dtype:
        return self._real.dtype(algebra)

    def table(self, source: Source, algebra: Algebra) -> Tensor:
        key = (source, id(algebra))
        if key not in self._cache:
            table = self._real.table(source, algebra)
            if not isinstance(table, Tensor) or not table.dtype.is_floating_point:
                raise NotTraceable(f"{source.name} is a relation or function with listed or certain values")
            with torch._C.DisableTorchFunction(), _disable_current_modes():
                table = table.detach()
            self._cache[key] = self._recorder.placeholder(self._fake.from_tensor(table))
            self.inputs.append((source, algebra))
        found: Tensor = self._cache[key]
        return found

    def _no_data(self, *_: Any) -> NoReturn:
        raise NotTraceable("it looks at rows, samples or features")

    def _no_network(self, *_: Any) -> NoReturn:
        raise NotTraceable("it calls a network on single tuples")

    def find_list(self, key: Any, inputs: tuple[Any, ...]) -> NoReturn:
        raise NotTraceable("it has a guard")

    column = features = sampled = lengths = positions = _no_data  # type: ignore[assignment]
    raw = pairs = direct = named_table = _no_network  # type: ignore[assignment]


class Recorder(TorchFunctionMode):
    """Records operations on tensors as a graph, above autograd, so that it has the derivatives of the original."""

    def __init__(self) -> None:
        super().__init__()
        self._graph = fx.Graph()
        self._root = nn.Module()
        self._nodes: dict[int, fx.Node] = {}
        self._alive: list[Tensor] = []

    def placeholder(self, tensor: Tensor) -> Tensor:
        self._know(tensor, self._graph.placeholder(f"table{len(self._nodes)}"))
        return tensor

    def _know(self, tensor: Tensor, node: fx.Node) -> None:
        self._nodes[id(tensor)] = node
        self._alive.append(tensor)  # so that no other tensor gets its identity

    def _argument(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in self._nodes:  # a constant, or a parameter of an operator
            name = f"constant{len(self._alive)}"
            if isinstance(value, nn.Parameter):
                self._root.register_parameter(name, value)
            else:
                self._root.register_buffer(name, value)
            self._know(value, self._graph.get_attr(name))
        return self._nodes[id(value)]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        try:
            out = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise NotTraceable("it looks at the content of a tensor") from error
        if not any(isinstance(t, Tensor) for t in tree_leaves(out)):
            return out
        if getattr(func, "__name__", "") == "__get__":  # a property, such as x.T
            node = self._graph.call_function(getattr, (self._argument(args[0]), func.__self__.__name__))
        else:
            node = self._call(func, args, kwargs)
        if isinstance(out, Tensor):
            self._know(out, node)
        else:
            for place, part in enumerate(out):
                self._know(part, self._graph.call_function(operator.getitem, (node, place)))
        return out

    def _call(self, func: Any, args: Any, kwargs: Any) -> fx.Node:
        if any(callable(a) and not isinstance(a, Tensor | torch.dtype) for a in args):
            name = f"call{len(self._alive)}"
            self._root.add_module(name, _Applied(func, args))
            return self._graph.call_module(name, tuple([self._argument(a) for a in args if isinstance(a, Tensor)]))
        args, kwargs = tree_map(self._argument, (args, kwargs))
        return self._graph.call_function(func, tuple(args), kwargs)

    def module(self, outputs: Sequence[Tensor]) -> fx.GraphModule:
        self._graph.output(tuple([self._argument(t) for t in outputs]))
        return fx.GraphModule(self._root, self._graph)


class _Applied(nn.Module):
    def __init__(self, func: Any, args: Sequence[Any]) -> None:
        super().__init__()
        self.func = func
        self.rest = [None if isinstance(a, Tensor) else a for a in args]

    def forward(self, *tensors: Tensor) -> Any:
        given = iter(tensors)
        return self.func(*[next(given) if a is None else a for a in self.rest])
