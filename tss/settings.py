"""What a store fixes with its first task: backbone, method, preset, seed and options."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tss.config import Config, resolve
from tss.errors import ConfigError, StoreError


@dataclass(frozen=True)
class Settings:
    backbone: str = "bart-nano"
    method: str = "tss+"
    preset: str = "recommended"
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def settle(cls, stored: dict[str, Any], given: dict[str, Any], options: dict[str, Any], where: str) -> Settings:
        """The settings of a store (`stored`: its identity, empty before the first task), with what a caller gives.

        Raises StoreError where a caller gives something else than the store was made with.
        """
        kept = {key: stored[key] for key in asdict(cls()) if key in stored}
        asked = {key: value for key, value in given.items() if value is not None}
        for key, value in asked.items():
            moved = (
                key == "backbone" and Path(str(value), "config.json").is_file()
            )  # its hash is compared when it loads
            if key in kept and value != kept[key] and not moved:
                raise StoreError(
                    f"{where} was made with {key} {kept[key]!r}, not {value!r}; a store keeps its {key}: leave the "
                    "option out, or use another folder"
                )
        settled = cls(**{**kept, **asked, "options": {**kept.get("options", {}), **options}})
        if stored and options:
            settled._check_fixed(cls(**kept), where)
        return settled

    def config(self) -> Config:
        return resolve(self.method, self.preset, self.options)

    def _check_fixed(self, first: Settings, where: str) -> None:
        """Options of training and reading may change from task to task; adapters, method and precision may not."""
        was, now = first.config(), self.config()
        fixed = [*vars(was.adapter), *vars(was.method), "precision"]
        before, after = was.flat(), now.flat()
        for key in fixed:
            if before[key] != after[key]:
                raise StoreError(f"{where} was made with {key}={before[key]!r}, which later tasks must keep")


def choose_device(name: str | None) -> str:
    """The device asked for, or the GPU if there is one. Raises ConfigError for one that is not there."""
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise ConfigError(f"there is no device {name!r}; use cpu or cuda") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError("the device 'cuda' was asked for, but torch sees no GPU here; use cpu")
    return name
