"""The options of a run: one frozen dataclass a part, set by flat keys, checked before any model is loaded."""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from typing import Any

from tss.backbones.adapters import AdapterConfig
from tss.errors import ConfigError, nearest
from tss.learning.schedule import LearningConfig
from tss.methods import method_class
from tss.tasks.kind import ReadingConfig

# Where paper and released code disagree with what we recommend. Keys that a method does not have are left out.
PRESETS: dict[str, dict[str, Any]] = {
    "recommended": {},
    "paper": {
        "head": "two-layer",
        "pool": "last",
        "asc_pool": "mean",
        "head_lr": 3e-2,
        "adapter_lr": 3e-2,
        "cat_probe": "full",
    },
    "code": {
        "head": "two-layer",
        "pool": "last",
        "threshold": "ge",
        "score_lr": 5e-4,
        "adapter_lr": 5e-4,
        "impt_target": "alpha",
        "softmask_apply": "grad",
        "hat_block": "grad",
        "hat_plugin": True,
        "cat_open": "code",
        "cat_probe": "full",
        "adam_eps": 1e-6,
        "adam_eps_uncorrected": True,
        "warmup": 0.5,
        "epochs": 100,
        "patience": 10,
        "precision": "float16",
    },
}


@dataclass(frozen=True)
class Config:
    adapter: AdapterConfig
    reading: ReadingConfig
    learning: LearningConfig
    method: Any

    def flat(self) -> dict[str, Any]:
        """Every option by its key, JSON-able; the record of a run."""
        return {k: v for part in (self.adapter, self.reading, self.learning, self.method) for k, v in _items(part)}


def _items(part: Any) -> list[tuple[str, Any]]:
    return list(dataclasses.asdict(part).items())


def resolve(method: str, preset: str = "recommended", given: dict[str, Any] | None = None) -> Config:
    """The configuration of a method under a preset, with the given options on top.

    Raises ConfigError for an unknown method, preset or key, a value of the wrong type, or an impossible pair.
    """
    if preset not in PRESETS:
        raise ConfigError(f"no preset {preset!r}{nearest(preset, list(PRESETS))}")
    parts = {
        "adapter": AdapterConfig,
        "reading": ReadingConfig,
        "learning": LearningConfig,
        "method": method_class(method).Config,
    }
    hints = {name: typing.get_type_hints(cls) for name, cls in parts.items()}
    known = {key: part for part, keys in hints.items() for key in keys}
    usual = {**method_class(method).defaults, **PRESETS[preset]}
    chosen = {key: value for key, value in usual.items() if key in known}
    for key, value in (given or {}).items():
        if key not in known:
            raise ConfigError(f"no option {key!r} for the method {method}{nearest(key, list(known))}")
        chosen[key] = _typed(key, value, hints[known[key]][key])
    made = {
        name: cls(**{key: value for key, value in chosen.items() if known[key] == name}) for name, cls in parts.items()
    }
    return Config(**made)


def _typed(key: str, value: Any, wanted: type) -> Any:
    """The value in the option's own type; text as it comes from the command line is read."""
    if isinstance(wanted, types.UnionType):
        wanted = next(t for t in typing.get_args(wanted) if t is not type(None))
    if wanted is bool and isinstance(value, str) and value.lower() in ("true", "false", "yes", "no", "1", "0"):
        return value.lower() in ("true", "yes", "1")
    if wanted is float and isinstance(value, (int, str)) and not isinstance(value, bool):
        value = _number(key, value, float)
    elif wanted is int and isinstance(value, str):
        value = _number(key, value, int)
    if type(value) is not wanted:
        raise ConfigError(f"{key} takes a {wanted.__name__}, not {value!r}")
    if isinstance(value, float) and not abs(value) < 1e36:  # float32 must hold what is made of it
        raise ConfigError(f"{key}={value} is not a number that can be used")
    return value


def _number(key: str, value: Any, kind: type) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise ConfigError(f"{key} takes a {kind.__name__}, not {value!r}") from None
