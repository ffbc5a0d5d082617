"""Configurations: frozen dataclasses in, JSON out, and back without guessing."""

from __future__ import annotations

import dataclasses
import difflib
import enum
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast

from doxa.errors import ConfigError
from doxa.train.runs._files import read_object

T = TypeVar("T")


def load_config(cls: type[T], values: Mapping[str, Any] | None = None, *, overrides: Iterable[str] = ()) -> T:
    """Build a frozen dataclass from plain values, with ``key=value`` overrides as from a command line.

    Fields may be ``bool``, ``int``, ``float``, ``str``, enums (by name), ``Literal``, tuples, ``None``, unions of
    these, mappings from ``str`` to these or to ``Any``, and further frozen dataclasses. A partial mapping for a nested
    dataclass refines the field's own default.
    An int will do for a float; nothing else is converted. In overrides, ``a.b=1`` reaches into ``a``; a tuple is
    ``1,2`` or ``[1, 2]``.

    Args:
        cls: a frozen dataclass.
        values: by key, as JSON would give them; keys left out take their defaults.
        overrides: strings ``key=value``, later ones win.

    Raises:
        ConfigError: an unknown key (the nearest one is named), a missing key, or a value of the wrong type.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Config:
    ...     rate: float = 0.1
    ...     sizes: tuple[int, ...] = (8, 8)
    >>> load_config(Config, {"rate": 1}, overrides=["sizes=4,2"])
    Config(rate=1.0, sizes=(4, 2))
    >>> load_config(Config, {"rat": 1})
    Traceback (most recent call last):
    doxa.errors.ConfigError: unknown key 'rat'; did you mean 'rate'? Config has the keys: rate, sizes
    """
    merged = _copy(values or {})
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"override {override!r} is not of the form key=value")
        *parents, last = key.strip().split(".")
        node = merged
        for parent in parents:
            if not isinstance(node.setdefault(parent, {}), dict):
                node[parent] = {}
            node = node[parent]
        node[last] = _Text(text.strip())
    return cast(T, _build(cls, merged, "", None))


def read_config(cls: type[T], path: str | Path, *, overrides: Iterable[str] = ()) -> T:
    """Build a frozen dataclass from a JSON file; otherwise as `load_config`.

    Raises:
        ConfigError: there is no such file, it is not a JSON object, or its values do not fit.

    >>> import tempfile
    >>> @dataclasses.dataclass(frozen=True)
    ... class Config:
    ...     rate: float = 0.1
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "config.json").write_text('{"rate": 0.5}')
    ...     read_config(Config, Path(folder, "config.json"))
    Config(rate=0.5)
    """
    try:
        values = read_object(Path(path))
    except FileNotFoundError as error:
        raise ConfigError(f"there is no configuration file {path}") from error
    except ValueError as error:
        raise ConfigError(f"{error}; wanted an object with the keys of {cls.__name__}") from error
    return load_config(cls, values, overrides=overrides)


def config_values(config: object) -> dict[str, Any]:
    """The values of a configuration as JSON can hold them: the inverse of `load_config`.

    Enums become their names, tuples lists, and ``inf`` and ``nan`` strings.

    Raises:
        ConfigError: a value is not of its declared type, or would not come back as it is.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Config:
    ...     rate: float = 0.1
    ...     sizes: tuple[int, ...] = (8, 8)
    >>> config_values(Config(sizes=(4,)))
    {'rate': 0.1, 'sizes': [4]}
    """
    if isinstance(config, type) or not dataclasses.is_dataclass(config):
        raise ConfigError(f"a configuration is an instance of a frozen dataclass, got {config!r}")
    values = cast(dict[str, Any], _plain(config, ""))
    again = load_config(type(config), values)
    if again != config and repr(again) != repr(config):  # nan differs from itself, but not in writing
        raise ConfigError(
            f"{config!r} would come back as {again!r}; make the types in its unions tell their values apart"
        )
    return values


def did_you_mean(name: str, known: Iterable[str], most: int = 1, cutoff: float = 0.5) -> str:
    """A question that names what is nearest to an unknown name; nothing if nothing is near."""
    near = difflib.get_close_matches(name, list(known), most, cutoff)
    return f"did you mean {' or '.join(map(repr, near))}? " if near else ""


class _Text(str):
    """A value that came as text, to be read as its field's type says."""


class _Misfit(Exception):
    """A value does not fit a type."""


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _build(cls: Any, values: Mapping[str, Any], path: str, default: object) -> object:
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ConfigError(
            f"{getattr(cls, '__name__', cls)} is not a frozen dataclass; decorate it @dataclass(frozen=True)"
        )
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    try:
        hints = typing.get_type_hints(cls)
    except NameError as error:
        raise ConfigError(
            f"the types of {cls.__name__} cannot be looked up ({error}); define it in a module"
        ) from error
    for key in values:
        if key not in fields:
            hint = did_you_mean(path + str(key), [path + name for name in fields])
            raise ConfigError(
                f"unknown key {path + str(key)!r}; {hint}{cls.__name__} has the keys: {', '.join(fields)}"
            )
    arguments: dict[str, object] = {}
    for key, field in fields.items():
        own = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        fallback = own if default is None else getattr(default, key)
        if key in values:
            fallback = _fit(hints[key], values[key], path + key, fallback)
        if fallback is dataclasses.MISSING:
            raise ConfigError(f"{path + key} is missing; {cls.__name__} gives it no default")
        arguments[key] = fallback
    try:
        return cls(**arguments)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{path.rstrip('.') or cls.__name__}: {error}") from error


def _fit(hint: Any, value: Any, path: str, default: object) -> object:
    try:
        return _convert(hint, value, path, default)
    except _Misfit as error:
        shown = f"{str(value)!r} (text)" if isinstance(value, _Text) else f"{value!r} ({type(value).__name__})"
        raise ConfigError(f"{path} is {shown}, wanted {_name(hint)}{error}") from None


def _convert(hint: Any, value: Any, path: str, default: object) -> object:
    text = isinstance(value, _Text)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(arguments, value, path, default)
    if hint is None or hint is type(None):
        if value is None or (text and value.lower() in ("none", "null")):
            return None
    elif origin is Literal:
        for option in arguments:
            if (type(option) is type(value) and option == value) or (text and str(option) == value):
                return cast(object, option)
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        if isinstance(value, str) and value in hint.__members__:
            return hint[value]
        raise _Misfit(f": one of {', '.join(hint.__members__)}")
    elif dataclasses.is_dataclass(hint):
        if isinstance(value, Mapping):
            return _build(hint, value, path + ".", default if type(default) is hint else None)
        if text:
            raise _Misfit(f": set its keys one by one, as in {path}.key=value")
    elif origin is tuple:
        return _convert_tuple(arguments, value, path)
    elif origin is Mapping:
        if isinstance(value, Mapping):
            inner = arguments[1]
            return {k: v if inner is Any else _fit(inner, v, f"{path}.{k}", None) for k, v in value.items()}
    elif hint is bool:
        if isinstance(value, bool):
            return value
        if text and value.lower() in ("true", "false"):
            return bool(value.lower() == "true")
    elif hint is int:
        if type(value) is int or text:
            return _parse(int, value)
    elif hint is float:
        if type(value) in (int, float) or text or (isinstance(value, str) and value in ("inf", "-inf", "nan")):
            return _parse(float, value)
    elif hint is str:
        if isinstance(value, str):
            return str(value)
    else:
        raise ConfigError(
            f"{path} is declared as {_name(hint)}, which a configuration cannot hold; use bool, int, float, str, an "
            "enum, Literal, tuple[...], None, a union of these, or a frozen dataclass"
        )
    raise _Misfit("")


def _parse(kind: type[int] | type[float], value: Any) -> int | float:
    try:
        return kind(value)
    except (ValueError, OverflowError):
        raise _Misfit("") from None


def _convert_union(options: tuple[Any, ...], value: Any, path: str, default: object) -> object:
    # What fits exactly goes first, so that 1 stays an int in float | int; any text is a str, so that goes last.
    inner: ConfigError | None = None  # a dataclass or tuple that fitted but for something inside it
    for option in sorted(options, key=lambda option: (option is not type(value), option is str)):
        try:
            return _convert(option, value, path, default)
        except _Misfit:
            continue
        except ConfigError as error:
            inner = inner or error
    raise inner or _Misfit("")


def _convert_tuple(arguments: tuple[Any, ...], value: Any, path: str) -> object:
    if isinstance(value, _Text):
        if value.startswith("["):
            try:
                value = json.loads(value)
            except ValueError:
                raise _Misfit(", as in 1,2 or [1, 2]") from None
        else:
            value = [_Text(part.strip()) for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise _Misfit("")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    if len(arguments) != len(value):
        raise _Misfit(f" with {len(arguments)} items")
    return tuple(
        _fit(hint, item, f"{path}[{i}]", None) for i, (hint, item) in enumerate(zip(arguments, value, strict=True))
    )


def _plain(value: Any, path: str) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name), f"{path}{field.name}.")
            for field in dataclasses.fields(value)
            if field.init
        }
    if isinstance(value, enum.Enum):
        return value.name
    if type(value) is tuple:
        return [_plain(item, path) for item in value]
    if isinstance(value, Mapping):
        return {k: v if isinstance(v, list) else _plain(v, f"{path}{k}.") for k, v in value.items()}
    if type(value) is float and not math.isfinite(value):
        return repr(value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise ConfigError(f"{path.rstrip('.')} is {value!r} ({type(value).__name__}), which a configuration cannot hold")


def _name(hint: Any) -> str:
    if hint is type(None):
        return "None"
    if typing.get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_name(option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, typing.get_args(hint)))}"
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")
