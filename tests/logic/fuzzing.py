"""Fuzzing the parser, the checker and the linter: whatever the text, only ``KnowledgeError`` may come out.

Texts are mutations of a corpus (the examples, and the texts below that use every part of the language), sentences that
a small grammar makes up, words of the language in any order, and noise. The text of number ``i`` depends on the seed
and on ``i`` alone, so that every finding can be made again. Run it as a script::

    python tests/logic/fuzzing.py --count 200000 --seed 0 --folder findings
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from doxa.errors import KnowledgeError, visible
from doxa.logic import parse

SECONDS = 20.0
"""A text that takes longer is a finding."""
CHUNK = 500

WORLD = """
sort Person; sort Image; sort Object
sort Digit = 0..9
sort Line = -2..4
sort Colour = {red, green, "deep blue"}
const alice, bob, "New York": Person
const seven: Digit
pred friends(Person, Person), smokes(Person)
pred shows(Image, Digit)
pred rain
pred wet()
func digit(Image) -> Digit
func mother(Person) -> Person
func age(Person) -> Int
func height(Person) -> Real
func colour(Object) -> Colour
func today() -> Digit
data pairs(left: Image, right: Image, sum: Int)
data scenes(objects: Object*, label: Digit)
define knows(x: Person, y: Person) := friends(x, y) | exists z: Person. friends(x, z) & knows(z, y)
define alone(x: Person where x != alice) := !exists y: Person where y != x. knows(x, y)
define near(s in scenes, x, y in s.objects) :=
    colour(x) = colour(y) | exists z in s.objects. near(s, x, z) & near(s, z, y)
define parity(d: Digit where d > 1) -> Digit := parity(d - 2)
define parity(d: Digit) -> Digit := d
define dry := !rain & !wet
"""
STATEMENTS = """
[symmetry] forall x, y: Person. friends(x, y) -> friends(y, x)
[homophily, weight 0.5] forall x, y: Person where x != y. friends(x, y) & smokes(x) => smokes(y)
[learned, weight ?] ∀ x: Person. smokes(x) → smokes(mother(x))
[start, weight 2.5 ?] rain implies wet
forall x: Image. exactly 1 d: Digit. shows(x, d)
forall x: Image. at most 2 d: Digit where d > 3. shows(x, d)
at least 2 x: Person. smokes(x) or rain
forall x, y: Image sample 64. shows(x, digit(y)) <-> shows(y, digit(x))
forall p in pairs. digit(p.left) + digit(p.right) = p.sum
forall s in scenes. forall x, y in s.objects. colour(x) = colour(y) xor x = y
forall s in scenes, x in s.objects where s.label >= 3. colour(x) != red
forall p in pairs. d := digit(p.left), e := fresh digit(p.right) (d + e = p.sum & d <= e)
forall s in scenes. colour(s.objects[2]) = "deep blue"
forall p in others. smokes(p.who) | p.list[p.at + 1] = p.thing
not rain and (wet or true) iff ¬false ∨ rain ∧ wet
seven * 2 - 1 // 3 mod 5 < -seven + today()
∃ x: Person. height(x) ≥ 1.75 ∧ age(x) ≠ 3
!smokes("New York") <=> ~wet ⊕ rain
(forall x: Person. smokes(x)) -> exists y: Person.
    friends(y, alice)
    & friends(alice, y)   # goes on
fact friends(alice, bob)
fact !smokes(bob); fact smokes("New York")
[two] rain -> wet; [three] wet -> rain
forall d, e: Digit. d + e = 9 -> d = 9 - e
forall s in scenes. sum x in s.objects. parity(s.label) + 1 >= s.label * 2
forall s in scenes. (max x, y in s.objects where near(s, x, y). parity(s.label)) - 1 != min d: Digit. d
count x: Person where smokes(x) > 2 -> 1 + count x: Person where (smokes(x) & !alone(x)) <= 3
argmax x: Person where !alone(x). age(x) = alice | argmin x: Person. height(x) != bob
forall s in scenes. all_different x in s.objects where colour(x) != red. colour(x)
∑d: Digit. d = 45 & (forall count: Digit. count < 10)
"""
ALPHABET = "abxyPQ019_ \t\n\"'#;:,.()[]{}=!<>-+*/|&~?^%$@\\`¬∧∨→↔∀∃∈≤≥≠⊤⊥⊕…≔·×−雨𝒳"
CONTROLS = "\x00\x07\x08\x0b\x0c\r\x1b\x7f\x85\x9b\u061c\u200b\u200e\u202a\u202e\u2028\u2066\u2069\ufeff"
TWINS = dict(zip("aceopxyAHKx", "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0391\u041d\u041a\uff58", strict=True))
ALPHABET += "\u00a0\u0301" + CONTROLS
WORD = re.compile(r'"[^"\n]*"|\w+|\s+|<->|<=>|->|=>|:=|!=|<=|>=|//|\.\.|.', re.DOTALL)
HARD = [
    "0",
    "-1",
    "9" * 25,
    "9" * 5000,
    "1e999",
    "1e-999",
    "1.",
    ".5",
    "0x1F",
    "1_000",
    "0" * 50,
    '""',
    '"',
    '"\\"',
    "\udc80",
]
HARD += ["(" * 400, "!" * 400, "forall x: Person. " * 100, "- " * 200, 'include ""', 'include "."', 'include "\\u0000"']
HARD += ['facts smokes from "nowhere.csv"', 'facts smokes from "."', "sort Huge = 0..99999999999999999999", "]" * 50]


@cache
def corpus() -> tuple[str, ...]:
    examples = Path(__file__).resolve().parents[2] / "examples" / "knowledge"
    texts = [WORLD + STATEMENTS, *[f.read_text() for f in sorted(examples.glob("*.doxa"))]]
    statements = re.split(r"\n(?! )", STATEMENTS.strip())
    return (*texts, *[WORLD + s for s in statements], *statements)


@cache
def vocabulary() -> tuple[str, ...]:
    words = {w for text in corpus() for w in WORD.findall(text)} - {""}
    return (*sorted(words), *HARD, *ALPHABET)


# -- making texts ------------------------------------------------------------------------------------------------------


def text_of(seed: int, number: int) -> str:
    """The text of a number."""
    rng = random.Random(f"{seed}:{number}")
    way = rng.random()
    if way < 0.1:
        return noise(rng)
    if way < 0.2:
        return "".join([rng.choice(vocabulary()) + rng.choice(("", " ")) for _ in range(rng.randint(1, 40))])
    if way < 0.5:
        prefix, scope = rng.choice((("", {}), (PREFIX, SCOPE), (PREFIX, SCOPE)))
        text = WORLD + "\n".join([prefix + sentence(rng, 4, scope) for _ in range(rng.randint(1, 3))])
    else:
        text = rng.choice(corpus())
    for _ in range(int(rng.expovariate(0.5))):
        text = rng.choice(MUTATIONS)(rng, text)
    return text[:20_000]


def noise(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.randbytes(rng.randint(0, 80)).decode("utf-8", rng.choice(("replace", "surrogateescape", "ignore")))
    if rng.random() < 0.5:
        return "".join(
            [chr(rng.choice((rng.randrange(0x110000), rng.randrange(0x3000)))) for _ in range(rng.randint(0, 40))]
        )
    return "".join([rng.choice(ALPHABET) for _ in range(rng.randint(0, 80))])


def sentence(rng: random.Random, depth: int, scope: dict[str, str] | None = None) -> str:
    """A formula of the world: well formed, and mostly well sorted."""
    scope = scope or {}
    if depth == 0 or rng.random() < 0.15:
        return atom(rng, scope)
    way = rng.randrange(8)
    if way < 3:
        connective = rng.choice(("&", "|", "->", "<->", "xor"))
        return f"({sentence(rng, depth - 1, scope)} {connective} {sentence(rng, depth - 1, scope)})"
    if way == 3:
        return f"!({sentence(rng, depth - 1, scope)})"
    variable = rng.choice(("x", "y", "z", "d", "alice", "rain", "sum", "count", "max"))
    if way == 3 and rng.random() < 0.5:
        groups = f"{variable}: {rng.choice(tuple(TERMS))}" if rng.random() < 0.7 else f"{variable} in s.objects"
        return f"(all_different {groups}. {term(rng, rng.choice(('Digit', 'Colour')), 2, scope | {variable: 'Digit'})})"
    if way == 4:
        binder = f"{variable} := {rng.choice(('', 'fresh '))}digit({term(rng, 'Image', 1, scope)})"
        return f"{binder} ({sentence(rng, depth - 1, scope | {variable: 'Digit'})})"
    if way == 5:
        rows = rng.choice(("pairs", "scenes", "others"))
        body = sentence(rng, depth - 1, scope | {variable: rows})
        return f"(forall {variable} in {rows}. {body})"
    sort = rng.choice(tuple(TERMS))
    kind = rng.choice(("forall", "exists", f"{rng.choice(('exactly', 'at most', 'at least'))} {rng.randint(0, 12)}"))
    inner = scope | {variable: sort}
    guard = f" where {atom(rng, inner)}" if rng.random() < 0.3 else ""
    return f"({kind} {variable}: {sort}{guard}. {sentence(rng, depth - 1, inner)})"


TERMS = {
    "Person": ("alice", "bob", '"New York"', "mother({Person})"),
    "Image": ("{pairs}.left", "{pairs}.right", "{others}.image"),
    "Object": ("{scenes}.objects[{Digit}]", "{others}.thing"),
    "Digit": ("seven", "3", "digit({Image})", "today()", "{scenes}.label", "{Whole}"),
    "Line": ("0", "-2", "{Whole}"),
    "Colour": ("red", "green", '"deep blue"', "colour({Object})"),
}
NUMBERS = {
    "Whole": ("{Digit} + 1", "age({Person})", "{pairs}.sum", "({Whole} + {Line})", "-{Whole}", "({Whole} * 2)", "12"),
    "Sum": ("(sum n: Digit. n + {Whole})", "(max n: Line where n > {Digit}. {Number})", "{Count}", "(min n: Line. n)"),
    "Count": ("count n: Digit where rain", "(argmax n: Digit. n * {Line})", "count n: Line where ({Digit} < n)"),
    "Number": (
        "{Whole}",
        "{Sum}",
        "{Digit}",
        "{Line}",
        "({Number} - {Whole})",
        "2.5",
        "height({Person})",
        "{Whole} mod 3",
    ),
}
PREFIX = "forall i: Image. forall o: Object. forall p in pairs. forall s in scenes. forall q in others. "
SCOPE = {"i": "Image", "o": "Object", "p": "pairs", "s": "scenes", "q": "others"}


def term(rng: random.Random, sort: str, depth: int, scope: dict[str, str]) -> str:
    """A term of a sort, now and then of another."""
    if rng.random() < 0.02:
        sort = rng.choice(tuple(TERMS))
    known = [name for name, of in scope.items() if of == sort]
    if known and (depth <= 0 or rng.random() < 0.5):
        return rng.choice(known)
    forms = (TERMS | NUMBERS).get(sort) or known or ["other"]
    if depth <= 0:
        forms = [f for f in forms if "{" not in f] or known or ["other"]
    return re.sub(r"\{(\w+)\}", lambda part: term(rng, part[1], depth - 1, scope), rng.choice(forms))


def atom(rng: random.Random, scope: dict[str, str]) -> str:
    sort = rng.choice(("Number", "Number", *TERMS))
    orders = ("=", "!=", "<", "<=", ">", ">=") if sort in ("Number", "Digit", "Line") else ("=", "!=")
    form = rng.choice(
        ("rain", "wet", "true", "smokes({Person})", "friends({Person}, {Person})", "shows({Image}, {Digit})")
        + (f"{{{sort}}} {rng.choice(orders)} {{{sort}}}",) * 4
    )
    return re.sub(r"\{(\w+)\}", lambda part: term(rng, part[1], 2, scope), form)


def cut(rng: random.Random, text: str, longest: int = 60) -> tuple[int, int]:
    start = rng.randint(0, len(text))
    return start, min(len(text), start + rng.randint(0, longest))


def delete(rng: random.Random, text: str) -> str:
    start, end = cut(rng, text, rng.choice((1, 3, 30, 300)))
    return text[:start] + text[end:]


def duplicate(rng: random.Random, text: str) -> str:
    start, end = cut(rng, text)
    return text[:end] + text[start:end] * rng.choice((1, 1, 2, 20)) + text[end:]


def move(rng: random.Random, text: str) -> str:
    start, end = cut(rng, text)
    rest, to = text[:start] + text[end:], rng.randint(0, len(text))
    return rest[:to] + text[start:end] + rest[to:]


def splice(rng: random.Random, text: str) -> str:
    other = rng.choice(corpus())
    start, end = cut(rng, other, 200)
    at, until = cut(rng, text, rng.choice((0, 0, 60)))
    return text[:at] + other[start:end] + text[until:]


def insert(rng: random.Random, text: str, piece: str | None = None) -> str:
    at, until = cut(rng, text, rng.choice((0, 1)))
    return text[:at] + (piece or rng.choice(ALPHABET)) + text[until:]


def disguise(rng: random.Random, text: str) -> str:
    """Put a control or an escape sequence somewhere, or letters that look like those they replace."""
    if rng.random() < 0.5:
        return insert(rng, text, rng.choice((*CONTROLS, "\x1b[2J", '"\x1b]0;x\x07"', "# \u202e")))
    start, end = cut(rng, text, rng.choice((1, 5, 60)))
    return text[:start] + "".join([TWINS.get(c, c) for c in text[start:end]]) + text[end:]


def flip(rng: random.Random, text: str) -> str:
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(rng.randint(1, 4)):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data.decode("utf-8", rng.choice(("replace", "surrogateescape")))


def change_words(rng: random.Random, text: str) -> str:
    words = WORD.findall(text)
    if not words:
        return rng.choice(vocabulary())
    for _ in range(rng.randint(1, 3)):
        at, other = rng.randrange(len(words)), rng.randrange(len(words))
        match rng.randrange(5):
            case 0:
                words[at] = ""
            case 1:
                words[at] *= 2
            case 2:
                words[at], words[other] = words[other], words[at]
            case 3:
                words[at] = words[other]
            case _:
                words[at] = rng.choice(vocabulary())
    return "".join(words)


def change_lines(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[other])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            rng.shuffle(lines)
    return "\n".join(lines)


MUTATIONS: tuple[Callable[[random.Random, str], str], ...] = (
    delete,
    duplicate,
    move,
    splice,
    insert,
    disguise,
    flip,
    change_words,
    change_words,
    change_words,
    change_lines,
)


# -- trying them -------------------------------------------------------------------------------------------------------


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Interrupt what takes too long, where the system can."""

    def stop(signum: int, frame: object) -> None:
        raise TimeoutError(f"took more than {seconds} seconds")

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def shown(printed: str) -> None:
    """Want a text that does no more to a terminal than to stand on it."""
    if visible(printed, keep="\n\t") != printed:
        raise AssertionError(f"shows what cannot be seen: {printed!r}")


def attempt(text: str, thorough: bool, file: str | None = None) -> str:
    """Read a text and say what became of it; anything but ``KnowledgeError`` is not caught.

    A thorough attempt also lints, and reads back what was read and printed.
    """
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kb = parse(text, file=file, warn=thorough)
        for warning in caught:
            shown(str(warning.message))
    except KnowledgeError as error:
        if not error.diagnostics:
            raise AssertionError(f"an error without diagnostics: {error}") from error
        for diagnostic in error.diagnostics:
            span = diagnostic.span
            shown(diagnostic.render())
            if not diagnostic.message or diagnostic.severity != "error" or not diagnostic.render():
                raise AssertionError(f"an empty diagnostic: {diagnostic!r}") from error
            if (
                span is None
                or span.line < 1
                or not 1 <= span.column <= len(span.text) + 1
                or span.end_column <= span.column
            ):
                raise AssertionError(f"a diagnostic without a place: {diagnostic!r}") from error
        return "refused"
    if thorough:
        for printed in (str(kb), kb.unicode(), kb.latex()):
            shown(printed)
        again = parse(str(kb), warn=False)
        if again != kb:
            raise AssertionError(f"prints as another knowledge base:\n{kb}\nwhich is read as:\n{again}")
    return "accepted"


def shrink(text: str, fails: Callable[[str], bool], tries: int = 2000) -> str:
    """A shorter text that still fails: pieces are left out, large ones first."""
    size = max(1, len(text) // 2)
    while size and tries > 0:
        at = 0
        while at < len(text) and tries > 0:
            tries -= 1
            shorter = text[:at] + text[at + size :]
            if fails(shorter):
                text = shorter
            else:
                at += size
        size //= 2
    return text


def failure_of(text: str, thorough: bool, file: str | None = None) -> BaseException | None:
    try:
        with limited(SECONDS):
            attempt(text, thorough, file)
    except (Exception, RecursionError) as error:
        return error
    return None


Chunk = tuple[Counter[str], list[tuple[int, str, str]]]


def try_chunk(job: tuple[int, int, int]) -> Chunk:
    """Try texts ``start`` to ``stop`` of a seed; what became of them, and the findings with their tracebacks."""
    seed, start, stop = job
    outcomes: Counter[str] = Counter()
    findings: list[tuple[int, str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "fuzzed.doxa")  # so that included files are looked for where there are none
        for number in range(start, stop):
            text, thorough = text_of(seed, number), number % 4 == 0
            try:
                with limited(SECONDS):
                    outcomes[attempt(text, thorough, file)] += 1
            except Exception as error:
                outcomes["found"] += 1
                kind = type(error)
                if not isinstance(error, TimeoutError):
                    text = shrink(text, lambda t, kind=kind, th=thorough: type(failure_of(t, th, file)) is kind)
                findings.append((number, text, "".join(traceback.format_exception(error))))
    return outcomes, findings


def keep(stem: Path, text: str, trace: str) -> None:
    """Save a finding, also one that is no proper Unicode."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".doxa").write_bytes(text.encode("utf-8", "surrogatepass"))
    stem.with_suffix(".txt").write_text(trace, encoding="utf-8", errors="backslashreplace")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Feed mutated and random texts to the knowledge language.")
    parser.add_argument("--count", type=int, default=200_000, help="how many texts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--folder", type=Path, default=Path("fuzz-findings"), help="where findings are left")
    options = parser.parse_args(arguments)
    jobs = [(options.seed, n, min(n + CHUNK, options.count)) for n in range(0, options.count, CHUNK)]
    began, done, outcomes, findings = time.monotonic(), 0, Counter[str](), 0
    with ExitStack() as stack:
        run: Callable[..., Iterable[Chunk]] = map
        if options.processes > 1:
            context = multiprocessing.get_context("spawn")
            run = stack.enter_context(ProcessPoolExecutor(options.processes, context)).map
        for counts, found in run(try_chunk, jobs):
            outcomes += counts
            done += counts.total()
            findings += len(found)
            for number, text, trace in found:
                stem = options.folder / f"seed{options.seed}-{number}"
                keep(stem, text, trace)
                print(f"found: {stem}.doxa: {trace.strip().splitlines()[-1][:200]!r}", flush=True)
            if done // 10_000 != (done - counts.total()) // 10_000:
                print(f"{done:>9,} of {options.count:,} texts, {time.monotonic() - began:.0f} s", flush=True)
    summary = ", ".join([f"{n:,} {what}" for what, n in sorted(outcomes.items())])
    print(f"{done:,} texts in {time.monotonic() - began:.0f} s: {summary}")
    if findings:
        print(f"{findings} findings in {options.folder}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
