"""Configurations: typos and wrong types are errors that help; what is written comes back."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Optional

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from doxa.errors import ConfigError
from doxa.train import config_values, load_config, read_config


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Optimiser:
    rate: float = 0.1
    kind: Literal["adam", "sgd"] = "adam"
    momentum: float | None = None

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ValueError(f"rate is {self.rate}, wanted at least 0")


@dataclass(frozen=True)
class Config:
    name: str
    steps: int = 100
    shuffle: bool = True
    colour: Colour = Colour.RED
    sizes: tuple[int, ...] = (8, 8)
    window: tuple[int, float] = (1, 0.5)
    grid: tuple[tuple[int, int], ...] = ()
    optimiser: Optimiser = Optimiser(rate=0.5)
    second: Optional[Optimiser] = None  # noqa: UP045
    limit: int | float = 1
    label: str | None = None
    level: Literal[1, 2, "all"] = 1
    width: int = field(default=0, init=False)


def build(*overrides: str, **values: Any) -> Config:
    return load_config(Config, {"name": "a", **values}, overrides=overrides)


finite = st.floats(allow_nan=False)
optimisers = st.builds(
    Optimiser,
    rate=st.floats(min_value=0, allow_nan=False),
    kind=st.sampled_from(["adam", "sgd"]),
    momentum=st.none() | st.floats(),
)
configs = st.builds(
    Config,
    name=st.text(),
    steps=st.integers(),
    shuffle=st.booleans(),
    colour=st.sampled_from(Colour),
    sizes=st.lists(st.integers(), max_size=3).map(tuple),
    window=st.tuples(st.integers(), finite),
    grid=st.lists(st.tuples(st.integers(), st.integers()), max_size=2).map(tuple),
    optimiser=optimisers,
    second=st.none() | optimisers,
    limit=st.integers() | st.floats(),
    label=st.none() | st.text(),
    level=st.sampled_from([1, 2, "all"]),
)


@settings(deadline=None)
@given(configs)
def test_round_trip_through_json(config: Config) -> None:
    again = load_config(Config, json.loads(json.dumps(config_values(config), allow_nan=False)))
    assert repr(again) == repr(config)  # equal, with nan equal to nan and 1 not equal to 1.0


@pytest.mark.parametrize(
    "values, message",
    [
        ({"step": 3}, r"unknown key 'step'; did you mean 'steps'\? Config has the keys: name, steps, .*level$"),
        ({"optimiser": {"rte": 1}}, r"unknown key 'optimiser.rte'; did you mean 'optimiser.rate'\?"),
        ({"second": {"kin": "sgd"}}, r"unknown key 'second.kin'; did you mean 'second.kind'\?"),
        ({"zzzzzz": 1}, r"unknown key 'zzzzzz'; Config has the keys"),
        ({"width": 1}, r"unknown key 'width'"),
        ({"steps": "3"}, r"steps is '3' \(str\), wanted int"),
        ({"steps": 3.0}, r"steps is 3.0 \(float\), wanted int"),
        ({"steps": True}, r"steps is True \(bool\), wanted int"),
        ({"shuffle": 1}, r"shuffle is 1 \(int\), wanted bool"),
        ({"name": None}, r"name is None \(NoneType\), wanted str"),
        ({"colour": "GREEN"}, r"colour is 'GREEN' \(str\), wanted Colour: one of RED, BLUE"),
        ({"level": 3}, r"level is 3 \(int\), wanted one of 1, 2, all$"),
        ({"level": True}, r"level is True \(bool\)"),
        ({"sizes": [1, "a"]}, r"sizes\[1\] is 'a' \(str\), wanted int"),
        ({"sizes": 3}, r"sizes is 3 \(int\), wanted tuple\[int, \.\.\.\]"),
        ({"window": [1]}, r"window is \[1\] \(list\), wanted tuple\[int, float\] with 2 items"),
        ({"optimiser": {"rate": "fast"}}, r"optimiser.rate is 'fast' \(str\), wanted float"),
        ({"optimiser": {"rate": 10**400}}, r"optimiser.rate is 1000.* \(int\), wanted float"),
        ({"optimiser": {"rate": -1}}, r"optimiser: rate is -1.0, wanted at least 0"),
        ({"optimiser": 3}, r"optimiser is 3 \(int\), wanted Optimiser"),
        ({"second": 3}, r"second is 3 \(int\), wanted Optimiser or None"),
        ({"label": 3}, r"label is 3 \(int\), wanted str or None"),
    ],
)
def test_mistakes(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(**values)


def test_missing() -> None:
    with pytest.raises(ConfigError, match="name is missing; Config gives it no default"):
        load_config(Config)


def test_overrides() -> None:
    config = build(
        *("steps=7", "shuffle=false", "colour=BLUE", "sizes=1,2,3", "window=[4, 1e-2]", "grid=[[1,2],[3,4]]"),
        *("optimiser.kind=sgd", "second.momentum=0.9", "limit=inf", "label=a=b", "level=2", "steps=8"),
    )
    assert config == Config(
        name="a",
        steps=8,
        shuffle=False,
        colour=Colour.BLUE,
        sizes=(1, 2, 3),
        window=(4, 0.01),
        grid=((1, 2), (3, 4)),
        optimiser=Optimiser(rate=0.5, kind="sgd"),  # what is not named stays at the field's own default
        second=Optimiser(momentum=0.9),
        limit=math.inf,
        label="a=b",
        level=2,
    )
    assert build("sizes=", "label=none", label="x") == Config("a", sizes=())
    assert build("second.rate=2", second=None).second == Optimiser(rate=2.0)
    assert build("limit=3").limit == 3 and isinstance(build("limit=3").limit, int)
    assert build("optimiser.rate=2", optimiser={"momentum": 1}).optimiser == Optimiser(rate=2.0, momentum=1.0)


@pytest.mark.parametrize(
    "override, message",
    [
        ("steps", r"override 'steps' is not of the form key=value"),
        ("=3", r"is not of the form key=value"),
        ("stps=3", r"unknown key 'stps'; did you mean 'steps'"),
        ("optimiser.rat=3", r"unknown key 'optimiser.rat'; did you mean 'optimiser.rate'"),
        ("steps=many", r"steps is 'many' \(text\), wanted int"),
        ("steps=1.5", r"steps is '1.5' \(text\), wanted int"),
        ("shuffle=1", r"shuffle is '1' \(text\), wanted bool"),
        ("optimiser=sgd", r"wanted Optimiser: set its keys one by one, as in optimiser.key=value"),
        ("sizes=1,b", r"sizes\[1\] is 'b' \(text\), wanted int"),
        ("sizes=[1,", r"wanted tuple\[int, \.\.\.\], as in 1,2 or \[1, 2\]"),
        ("level=3", r"level is '3' \(text\), wanted one of 1, 2, all$"),
        ("steps.more=3", r"steps is \{'more': '3'\} \(dict\), wanted int"),
    ],
)
def test_mistakes_in_overrides(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(override)


def test_values_are_not_changed_by_overrides() -> None:
    values = {"name": "a", "optimiser": {"rate": 1.0}}
    load_config(Config, values, overrides=["optimiser.rate=2"])
    assert values == {"name": "a", "optimiser": {"rate": 1.0}}


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config_values(Config("b", steps=3))))
    assert read_config(Config, file, overrides=["shuffle=false"]) == Config("b", steps=3, shuffle=False)
    with pytest.raises(ConfigError, match="there is no configuration file"):
        read_config(Config, tmp_path / "none.json")
    for content in ("{", "[1]", '{"name": NaN}'):
        file.write_text(content)
        with pytest.raises(ConfigError, match=r"config\.json .* wanted an object"):
            read_config(Config, file)


@dataclass
class Melting:
    rate: float = 0.1


@dataclass(frozen=True)
class Holder:
    inner: Melting = field(default_factory=Melting)


@dataclass(frozen=True)
class Other:
    rate: float = 0.1
    kind: str = "adam"
    momentum: float | None = None


@dataclass(frozen=True)
class Ambiguous:
    choice: Optimiser | Other = Optimiser()


@dataclass(frozen=True)
class Unholdable:
    items: list[int] = field(default_factory=list)


def test_what_cannot_be_a_configuration() -> None:
    with pytest.raises(ConfigError, match="Melting is not a frozen dataclass"):
        load_config(Melting)
    with pytest.raises(ConfigError, match="Melting is not a frozen dataclass"):
        load_config(Holder, {"inner": {"rate": 1}})
    with pytest.raises(ConfigError, match="int is not a frozen dataclass"):
        load_config(int)
    with pytest.raises(ConfigError, match=r"items is declared as list\[int\], which a configuration cannot hold"):
        load_config(Unholdable, {"items": [1]})
    with pytest.raises(ConfigError, match=r"an instance of a frozen dataclass, got \{\}"):
        config_values({})
    with pytest.raises(ConfigError, match="an instance of a frozen dataclass"):
        config_values(Config)
    with pytest.raises(ConfigError, match=r"items is \[\] \(list\), which a configuration cannot hold"):
        config_values(Unholdable())
    with pytest.raises(ConfigError, match="steps is 'x'"):
        config_values(Config("a", steps="x"))  # type: ignore[arg-type]
    config_values(Ambiguous())
    with pytest.raises(ConfigError, match=r"would come back as .*tell their values apart"):
        config_values(Ambiguous(Other()))


def test_a_frozen_default_instance_is_refined_not_replaced() -> None:
    assert build(optimiser={"kind": "sgd"}).optimiser == Optimiser(rate=0.5, kind="sgd")
    assert dataclasses.asdict(build().optimiser)["rate"] == 0.5


def test_types_that_cannot_be_looked_up() -> None:
    @dataclass(frozen=True)
    class Inner:
        x: int = 0

    @dataclass(frozen=True)
    class Outer:
        inner: Inner = Inner()

    with pytest.raises(ConfigError, match=r"the types of Outer cannot be looked up.*define it in a module"):
        load_config(Outer)
