"""The grammar, and running it: Lark computes the LALR(1) table, and the loop here drives it.

There is one grammar of expressions for terms and formulas alike: what may stand where is decided by checking. An open
expression ends in a quantifier or an aggregate that reaches as far right as it can (an aggregate as far as its term
does), so it can only be the last operand. ``count`` ends with its guard, which is an atom or in parentheses.

Most reductions only hand a value on, and a chain of them depends on no more than the two topmost states and the next
token, so the loop remembers chains. Values are built by methods of a builder; there is no tree in between and nothing
recurses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import chain
from typing import Any

from doxa.logic.text._builder import Builder
from doxa.logic.text._lexer import Token

GRAMMAR = """
text: | text statement END -> statement

statement: expr -> axiom | header expr -> axiom
    | SORT NAME -> open_sort
    | SORT NAME EQ bound RANGE bound -> range_sort
    | SORT NAME EQ LBRACE names RBRACE -> value_sort
    | CONST names COLON NAME -> constants
    | PRED predicates -> predicates
    | CLOSED predicates -> closed_predicates
    | FUNC NAME LPAR names RPAR ARROW NAME -> function
    | FUNC NAME LPAR RPAR ARROW NAME -> function
    | DATA NAME LPAR fields RPAR -> rows
    | FACT expr -> fact
    | FACT LSQB NAME weight RSQB expr -> weighted_fact
    | FACTS NAME NAME NAME -> facts
    | FACTS NAME NAME NAME NAME -> facts
    | INCLUDE NAME -> include
    | DEFINE head ASSIGN expr -> definition
    | DEFINE head ARROW NAME ASSIGN expr -> definition

head: NAME -> head | NAME LPAR RPAR -> head
    | NAME LPAR groups RPAR -> head
    | NAME LPAR groups WHERE expr RPAR -> head
header: LSQB NAME RSQB -> name_header
    | LSQB NAME weight RSQB -> weight_header
    | LSQB NAME COMMA NAME weight RSQB -> weight_header
weight: bound -> weight | bound QUESTION -> weight | QUESTION -> weight
?bound: NUMBER | MINUS NUMBER -> negative_number
names: NAME -> first | names COMMA NAME -> further
predicates: predicate -> first | predicates COMMA predicate -> further
predicate: NAME -> proposition | NAME LPAR RPAR -> proposition | NAME LPAR names RPAR -> predicate
fields: field -> first | fields COMMA field -> further
field: NAME COLON NAME -> field_of_rows | NAME COLON NAME STAR -> field_of_rows

?expr: iff | open_iff

?iff: implies | iff IFF implies -> connective
?open_iff: open_implies | iff IFF open_implies -> connective

?implies: xor | xor ARROW implies -> connective | xor IMPLIES implies -> connective
?open_implies: open_xor | xor ARROW open_implies -> connective | xor IMPLIES open_implies -> connective

?xor: or | xor XOR or -> connective
?open_xor: open_or | xor XOR open_or -> connective

?or: and | or OR and -> chain
?open_or: open_and | or OR open_and -> chain

?and: not | and AND not -> chain
?open_and: open_not | and AND open_not -> chain

?not: comparison | NOT not -> negation | bindings LPAR expr RPAR -> let
?open_not: quantifier | NOT open_not -> negation

bindings: binding -> first | bindings COMMA binding -> further
binding: NAME ASSIGN call -> binding

quantifier: FORALL groups DOT expr -> quantified
    | FORALL groups WHERE expr DOT expr -> quantified
    | EXISTS groups DOT expr -> quantified
    | EXISTS groups WHERE expr DOT expr -> quantified
    | counting NUMBER groups DOT expr -> counted
    | counting NUMBER groups WHERE expr DOT expr -> counted
?counting: EXACTLY | ATMOST | ATLEAST | EXISTS EQ -> bounded | EXISTS COMPARE -> bounded
groups: group -> first | groups COMMA group -> further
group: names COLON NAME -> sort_group
    | names COLON NAME SAMPLE NUMBER -> sort_group
    | names IN postfix -> domain_group
    | names IN postfix SAMPLE NUMBER -> domain_group

?comparison: term | term EQ term -> comparison | term COMPARE term -> comparison
    | ALLDIFFERENT groups DOT term -> aggregated
    | ALLDIFFERENT groups WHERE expr DOT term -> aggregated
?term: sum | open_sum
?sum: product | sum PLUS product -> arithmetic | sum MINUS product -> arithmetic
?open_sum: open_product | sum PLUS open_product -> arithmetic | sum MINUS open_product -> arithmetic
?product: unary | product STAR unary -> arithmetic | product DIV unary -> arithmetic
?open_product: open_unary | product STAR open_unary -> arithmetic | product DIV open_unary -> arithmetic
?unary: postfix | MINUS unary -> minus | COUNT group -> counting_term | COUNT group WHERE chosen -> counting_term
?open_unary: aggregate | MINUS open_unary -> minus
aggregate: AGGREGATE groups DOT term -> aggregated
    | AGGREGATE groups WHERE expr DOT term -> aggregated
?chosen: postfix | NOT chosen -> negation
?postfix: atom | postfix FIELD -> field | postfix LSQB expr RSQB -> index
?atom: NAME | NUMBER | TRUTH | call | LPAR expr RPAR -> parentheses
call: NAME LPAR RPAR -> call
    | NAME LPAR arguments RPAR -> call
    | FRESH NAME LPAR RPAR -> fresh_call
    | FRESH NAME LPAR arguments RPAR -> fresh_call
arguments: expr -> first | arguments COMMA expr -> further
"""
"""The rules, for Lark. A rule of one symbol and no alias hands its value on; an alias names a method of the builder.

(The question marks say the same to Lark's own tree builder, which the benchmark runs.)
"""

_FINISH = Token("$END", None, "")


class Unexpected(Exception):
    """A token that cannot stand where it stands; ``states`` is the stack at that moment."""

    def __init__(self, token: Token, states: list[int]) -> None:
        super().__init__(token.text)
        self.token = token
        self.states = states


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


def run(table: Table, tokens: Iterable[Token], builder: Builder, placed: bool = False) -> None:
    """Parse, calling a method of ``builder`` for every rule with an alias, on the values of the rule's symbols.

    With ``placed``, the value of a token is ``(value, start, end)``.
    """
    actions = table.actions
    rules = [(size, origin, None if alias is None else builder.method(alias)) for size, origin, alias in table.rules]
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
                values.append((token.value, token.start, token.end) if placed else token.value)
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
