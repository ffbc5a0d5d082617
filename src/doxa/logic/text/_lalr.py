"""Running the grammar: Lark computes the LALR(1) table, and the loop here drives it.

The loop knows one thing that Lark's own does not: most reductions only hand a value on (a name is an atom is a postfix
expression is ... is an expression), and a chain of them depends on no more than the two topmost states and the next
token. Chains are remembered, so that each costs one look-up. Values are built by methods of a builder that is given for
each run; there is no tree in between and nothing recurses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from typing import Any

from doxa.errors import KnowledgeError
from doxa.logic.text._grammar import GRAMMAR
from doxa.logic.text._lexer import Token

_FINISH = Token("$END", None, "")


class Unexpected(Exception):
    """A token that cannot stand where it stands; ``states`` is the stack at that moment."""

    def __init__(self, token: Token, states: list[int]) -> None:
        super().__init__(token.text)
        self.token = token
        self.states = states


class Mistaken(Exception):
    """What a builder refused, and where it stands."""

    def __init__(self, error: KnowledgeError, start: int, end: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.start = start
        self.end = end


class Table:
    """Of every state and symbol: the next state, or ``-1 - r`` to reduce by rule ``r``."""

    def __init__(self) -> None:
        from lark import Lark

        terminals = sorted(set(re.findall(r"\b[A-Z]{2,}\b", GRAMMAR)))
        lark = Lark(f"{GRAMMAR}\n%declare {' '.join(terminals)}", parser="lalr", lexer="basic", start="text")
        plan = lark.parse_interactive("").parser_state.parse_conf
        number = {state: i for i, state in enumerate(plan.states)}
        place: dict[Any, int] = {}
        self.rules: list[tuple[int, str, str | None]] = []
        """Of every rule: how many symbols, what they become, and the method that builds it (None: handed on)."""
        self.actions: list[dict[str, int]] = []
        for row in plan.states.values():
            actions: dict[str, int] = {}
            for symbol, (action, target) in row.items():
                if action.name == "Shift":
                    actions[symbol] = number[target]
                    continue
                if target not in place:
                    place[target] = len(self.rules)
                    self.rules.append((len(target.expansion), str(target.origin.name), target.alias))
                actions[symbol] = -1 - place[target]
            self.actions.append(actions)
        self.single = [size == 1 and alias is None for size, _, alias in self.rules]
        """Of every rule: does it only pass on the value of its one symbol?"""
        self.start, self.end = number[plan.start_state], number[plan.end_state]
        self.terminals = terminals


@cache
def table() -> Table:
    """The table of the grammar, computed at first use."""
    return Table()


def run(table: Table, tokens: Iterable[Token], builder: object) -> None:
    """Parse, calling a method of ``builder`` for every rule with an alias, on the values of the rule's symbols."""
    actions = table.actions
    rules = [(size, origin, None if alias is None else getattr(builder, alias)) for size, origin, alias in table.rules]
    chains: dict[tuple[int, int, str], int] = {}
    states: list[int] = [table.start]
    values: list[Any] = []
    for token in chain(tokens, (_FINISH,)):
        kind = token.kind
        state = states[-1]
        while True:
            action = actions[state].get(kind)
            if action is None:
                if token is _FINISH and state == table.end:
                    return
                raise Unexpected(token, states)
            if action >= 0:
                states.append(action)
                values.append(token.value)
                break
            size, origin, build = rules[-1 - action]
            if build is not None:
                value = build(*values[-size:])
                del states[-size:], values[-size:]
                values.append(value)
                state = actions[states[-1]][origin]
                states.append(state)
                continue
            if size == 0:
                values.append(None)
                state = actions[state][origin]
                states.append(state)
                continue
            key = (states[-2], state, kind)
            known = chains.get(key)
            if known is None:
                known = state
                while (action := actions[known].get(kind, 0)) < 0 and table.single[-1 - action]:
                    known = actions[states[-2]][rules[-1 - action][1]]
                chains[key] = known
            states[-1] = state = known


def run_located(table: Table, tokens: list[Token], builder: object, place: Callable[[object, int, int], None]) -> None:
    """The same, with places: ``place(value, start, end)`` is called on every value with where it stands in the text.

    A :class:`~doxa.errors.KnowledgeError` of the builder comes out as :class:`Mistaken`, with the place.
    """
    placed: list[Token] = []
    for token in tokens:
        place(token.value, token.start, token.end)
        placed.append(Token(token.kind, (token.value, token.start, token.end), token.text, token.start, token.end))
    try:
        run(table, placed, _Located(builder, place))
    except Unexpected as wrong:
        original = tokens[placed.index(wrong.token)] if wrong.token in placed else wrong.token
        raise Unexpected(original, wrong.states) from None


class _Located:
    """A builder of values with their places: calls the methods of another, and says where each result stands."""

    def __init__(self, builder: object, place: Callable[[object, int, int], None]) -> None:
        self._builder, self._place = builder, place

    def __getattr__(self, alias: str) -> Callable[..., tuple[Any, int, int]]:
        def build(*symbols: tuple[Any, int, int] | None) -> tuple[Any, int, int]:
            known = [symbol for symbol in symbols if symbol is not None]
            start, end = known[0][1], known[-1][2]
            try:
                value = getattr(self._builder, alias)(*[None if s is None else s[0] for s in symbols])
            except KnowledgeError as error:
                raise Mistaken(error, start, end) from None
            self._place(value, start, end)
            return value, start, end

        return build


def expected(table: Table, states: list[int]) -> set[str]:
    """The terminals that could have come instead."""
    return {kind for kind in table.actions[states[-1]] if kind in table.terminals and _accepts(table, states, kind)}


def _accepts(table: Table, states: list[int], kind: str) -> bool:
    height, top = len(states) - 1, [states[-1]]  # the states above ``height`` of the stack
    while True:
        action = table.actions[top[-1]].get(kind)
        if action is None or action >= 0:
            return action is not None
        size, origin, _ = table.rules[-1 - action]
        while len(top) <= size:
            height -= 1
            top.insert(0, states[height])
        del top[len(top) - size :]
        top.append(table.actions[top[-1]][origin])
