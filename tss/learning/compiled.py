"""A method's loss compiled by PyTorch (option `compile`): fewer, larger kernels, for seconds of compiling a length."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from tss.methods.method import Method
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson

Loss = Callable[[Lesson, Batch], Tensor]
VARIANTS = 128


def compiled(method: Method) -> Loss:
    """The method's loss, compiled once for each lesson; as it is where it may change from step to step.

    What is compiled sees three tensors and nothing else of a batch: a number among its inputs would be compiled in.
    """
    if not method.steady:
        return method.loss
    import torch._dynamo  # takes seconds, so only where it is asked for

    # Every layer of a backbone is one more variant of the same code.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    ready: dict[Lesson, Callable[[Tensor, Tensor, Tensor], Tensor]] = {}

    def loss(lesson: Lesson, batch: Batch) -> Tensor:
        if lesson not in ready:
            ready[lesson] = torch.compile(lambda ids, mask, target: method.loss(lesson, Batch(ids, mask, target, ())))
        return ready[lesson](batch.ids, batch.mask, batch.target)

    return loss
