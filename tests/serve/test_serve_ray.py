"""The example for several replicas, on a local Ray."""

from __future__ import annotations

import importlib.util
import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "deploy" / "ray_serve.py"


PORT = 18765


def _answer() -> str:
    """One answer; a replica that is still loading its model says 503 and is asked again."""
    body = json.dumps({"task": "mood", "text": "nice day"}).encode()
    sent = urllib.request.Request(f"http://127.0.0.1:{PORT}/predict", body, {"Content-Type": "application/json"})
    for _ in range(120):
        try:
            with urllib.request.urlopen(sent, timeout=60) as reply:
                return json.load(reply)["answer"]
        except urllib.error.HTTPError as problem:
            assert problem.code == 503, problem.read()
            time.sleep(0.5)
    raise AssertionError("no replica became ready")


@pytest.mark.slow
def test_two_replicas_answer_alike(planted_store: Path):
    ray = pytest.importorskip("ray", reason="this needs the extra `ray`")
    serve = pytest.importorskip("ray.serve", reason="this needs ray[serve]", exc_type=ImportError)
    spec = importlib.util.spec_from_file_location("ray_serve_example", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": PORT})
        serve.run(example.replicas(str(planted_store), count=2, device="cpu"), route_prefix="/")
        found = [_answer() for _ in range(20)]
        assert len(set(found)) == 1 and found[0].startswith("mood ")
    finally:
        serve.shutdown()
        ray.shutdown()
