"""The registry: a method's name and where it lives. A new method is one new file and its line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tss.errors import ConfigError, nearest

if TYPE_CHECKING:
    from tss.methods.method import Method

METHODS = {
    "tss": "tss.methods.tss:Tss",
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
    "one-prompt": "tss.methods.prompt:OnePrompt",
    "l2p": "tss.methods.l2p:L2P",
}


def method_class(name: str) -> type[Method]:
    """The class of a method. Raises ConfigError, with the nearest names, for one that does not exist."""
    if name not in METHODS:
        raise ConfigError(f"no method {name!r}{nearest(name, list(METHODS))}")
    module, attribute = METHODS[name].split(":")
    return getattr(import_module(module), attribute)
