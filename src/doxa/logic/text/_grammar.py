"""The keywords and the grammar of the knowledge language.

There is one grammar of expressions for terms and formulas alike, as in Python: what may stand where is decided by
checking. Connectives come in a closed and an open form: an open expression ends in a quantifier that reaches as far
right as it can, so it can only be the last operand. Thereby the grammar is unambiguous and LALR(1).
"""

from __future__ import annotations

from doxa.logic.syntax._words import RESERVED

NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
STRING = r'"(?:[^"\\\n]|\\[^\n])*"'
_GAP = r"[^\S\n]+"
_SPACE = r"[^\S\n]*"
_NAME_AHEAD = rf'(?="|(?!(?:{"|".join(sorted(RESERVED))})\b|sample{_GAP}[0-9]|from{_GAP}")[^\W\d])'

_WEIGHT = rf"{_SPACE}[-−]?{_SPACE}(?:{NUMBER})?{_SPACE}\??{_SPACE}"
_ATOM_AHEAD = rf"(?:{_NAME_AHEAD}|(?=not\b|[¬~]|!(?!=)))"

DECLARATIONS = ("SORT", "CONST", "PRED", "CLOSED", "FUNC", "DATA", "FACT", "FACTS", "INCLUDE")
SOFT: dict[str, str] = {
    **{word.upper(): rf"{word}{_GAP}{_NAME_AHEAD}" for word in ("sort", "const", "pred", "func", "data", "facts")},
    "CLOSED": rf"closed{_GAP}pred{_GAP}{_NAME_AHEAD}",
    "FACT": rf"fact{_GAP}(?:{_ATOM_AHEAD}|(?=\[{_SPACE}weight{_WEIGHT}\]{_SPACE}{_ATOM_AHEAD}))",
    "INCLUDE": rf'include{_GAP}(?=")',
    "EXACTLY": rf"exactly{_GAP}(?=[0-9])",
    "ATMOST": rf"at{_GAP}most{_GAP}(?=[0-9])",
    "ATLEAST": rf"at{_GAP}least{_GAP}(?=[0-9])",
    "SAMPLE": rf"sample{_GAP}(?=[0-9])",
    "FRESH": rf"fresh{_GAP}{_NAME_AHEAD}",
}
"""Keywords that are recognised only by what follows them, where a name could not stand: elsewhere they are names.

Each takes the white space behind it, by which it differs from the name.
"""

GRAMMAR = """
text: | text statement END -> statement

statement: expr -> axiom
    | LSQB NAME RSQB expr -> named_axiom
    | LSQB NAME weight RSQB expr -> weighted_axiom
    | LSQB NAME COMMA NAME weight RSQB expr -> named_weighted_axiom
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

weight: bound -> fixed_weight | bound QUESTION -> starting_weight | QUESTION -> learned_weight
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
?counting: EXACTLY | ATMOST | ATLEAST | EXISTS EQ -> exactly | EXISTS COMPARE -> bounded
groups: group -> first | groups COMMA group -> further
group: names COLON NAME -> sort_group
    | names COLON NAME SAMPLE NUMBER -> sort_group
    | names IN postfix -> domain_group
    | names IN postfix SAMPLE NUMBER -> domain_group

?comparison: sum | sum EQ sum -> comparison | sum COMPARE sum -> comparison
?sum: product | sum PLUS product -> arithmetic | sum MINUS product -> arithmetic
?product: unary | product STAR unary -> arithmetic | product DIV unary -> arithmetic
?unary: postfix | MINUS unary -> minus
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
