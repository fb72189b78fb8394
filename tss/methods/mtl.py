"""MTL (Adapter): all tasks of a group learnt together over one shared adapter, own heads; the upper bound.

Batches of all tasks are mixed in random order; the checkpoint is chosen by the mean dev score. Not continual: it needs
all data at once. `Learner.learn_together` trains it.
"""

from __future__ import annotations

from tss.methods.ncl import NclAdapter


class MtlAdapter(NclAdapter):
    label = "MTL (Adapter)"
    forgets = False
    order_free = True
    joint = True
