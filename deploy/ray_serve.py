"""Several replicas of one store behind one address, by Ray Serve.

    pip install 'tss[serve]' 'ray[serve]'
    TSS_STORE=/path/to/store serve run deploy.ray_serve:app

Each replica is the whole server (`make_app`): its own queue and batches, the same routes, limits and page. Replicas
only read the store, so any number of them follow what a learner writes. Set TSS_TOKEN to ask for a token, TSS_REPLICAS
for their number.
"""

from __future__ import annotations

import os

from ray import serve

from tss.serve.app import make_app
from tss.serve.limits import Limits
from tss.serve.tasks import Tasks


def replicas(store: str, count: int = 2, token: str | None = None, device: str | None = None) -> serve.Application:
    """The application for `serve.run`."""

    def build():
        return make_app(Tasks(store, device), Limits(), token)

    ingress = serve.ingress(build)(type("Tss", (), {}))
    gpus = 1 if device and device.startswith("cuda") else 0
    options = {"num_cpus": 1, "num_gpus": gpus}
    return serve.deployment(num_replicas=count, ray_actor_options=options, graceful_shutdown_timeout_s=40)(
        ingress
    ).bind()


if "TSS_STORE" in os.environ:
    app = replicas(
        os.environ["TSS_STORE"], int(os.environ.get("TSS_REPLICAS", "2")), os.environ.get("TSS_TOKEN") or None
    )
