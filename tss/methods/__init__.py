"""The registry: a method's name and where it lives. A new method is one new file and its line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tss.errors import ConfigError, nearest

if TYPE_CHECKING:
    from tss.methods.method import Method

METHODS = {
    "tss": "tss.methods.tss:Tss",
    "tss+": "tss.methods.plus:Plus",
    "tss-naive": "tss.methods.tss:Naive",
    "tss-no-sm": "tss.methods.supsup:SupSup",
    "tss-no-sd": "tss.methods.without_sd:WithoutSubnetworks",
    "supsup": "tss.methods.supsup:SupSup",
    "one-adapter": "tss.methods.one:OneAdapter",
    "ncl-adapter": "tss.methods.ncl:NclAdapter",
    "mtl-adapter": "tss.methods.mtl:MtlAdapter",
    "one": "tss.methods.one:One",
    "ncl": "tss.methods.ncl:Ncl",
    "mtl": "tss.methods.mtl:Mtl",
    "ewc": "tss.methods.ewc:Ewc",
    "das": "tss.methods.das:Das",
    "hat": "tss.methods.hat:Hat",
    "cat": "tss.methods.cat:Cat",
    "ctr": "tss.methods.ctr:Ctr",
    "cuber": "tss.methods.cuber:Cuber",
    "lamol": "tss.methods.lamol:Lamol",
    "one-prompt": "tss.methods.prompt:OnePrompt",
    "l2p": "tss.methods.l2p:L2P",
}

PAGES: dict[str, tuple[str, ...]] = {"tss": ("tss-naive", "tss-no-sm", "tss-no-sd", "supsup"), "plus": ("tss+",)}
PAGES |= {name: (f"{name}-adapter",) for name in ("one", "ncl", "mtl")}


def page_of(name: str) -> str:
    """The page of docs/methods that describes a method."""
    return next((page for page, names in PAGES.items() if name in names), name)


def method_class(name: str) -> type[Method]:
    """The class of a method. Raises ConfigError, with the nearest names, for one that does not exist."""
    if name not in METHODS:
        raise ConfigError(f"no method {name!r}{nearest(name, list(METHODS))}")
    module, attribute = METHODS[name].split(":")
    return getattr(import_module(module), attribute)
