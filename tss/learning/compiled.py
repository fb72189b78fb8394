"""A method's loss as the loop asks for it: plain, of packed rows (option `packed`), or compiled.

Compiled by PyTorch (option `compile`): fewer, larger kernels, for seconds of compiling a length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from tss.backbones.packed import Laid
from tss.methods.method import Method
from tss.tasks.batches import IGNORED, Batch
from tss.tasks.lesson import Lesson

Loss = Callable[[Lesson, Batch], Tensor]
VARIANTS = 128


def plain(method: Method) -> Loss:
    """The method's loss, of packed rows where the batch has them and the backbone can compute them."""

    def loss(lesson: Lesson, batch: Batch) -> Tensor:
        if not (batch.packing and lesson.backbone.packs):
            return method.loss(lesson, batch)
        padded = (batch.ids, batch.target)
        packing = [Laid.of(index, each) for index, each in zip(batch.packing, padded, strict=False)]
        if len(packing) > 1:  # a mean over all tokens of the targets, wherever they stand
            batch = replace(batch, target=packing[1].lay(batch.target, IGNORED))
        with lesson.backbone.packed(packing):
            return method.loss(lesson, batch)

    return loss


def compiled(method: Method) -> Loss:
    """The method's loss, compiled once for each lesson; as it is where it may change from step to step.

    What is compiled sees the tensors and nothing else of a batch: a number among its inputs would be compiled in.
    """
    if not method.steady:
        return plain(method)
    import torch._dynamo  # takes seconds, so only where it is asked for

    # Every layer of a backbone is one more variant of the same code.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    ready: dict[Lesson, Callable[..., Tensor]] = {}
    of = plain(method)

    def loss(lesson: Lesson, batch: Batch) -> Tensor:
        if lesson not in ready:
            like = replace(batch, numbers=())
            ready[lesson] = torch.compile(lambda *tensors: of(lesson, like.holding(tensors)))
        return ready[lesson](*batch.tensors())

    return loss
