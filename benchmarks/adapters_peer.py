"""The package `adapters` in an interpreter of its own, as it asks for an older transformers. Prints one line of JSON.

PYTHON benchmarks/adapters_peer.py step '{"rows": 8, "length": 32, "config": {…}}'    # milliseconds of a step
PYTHON benchmarks/adapters_peer.py size '{"config": {…}}'                             # bytes of a saved adapter
"""

import json
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import adapters
import torch
from transformers import BartConfig, BartModel

KEYS = ("vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim",
        "encoder_attention_heads", "decoder_attention_heads", "max_position_embeddings")  # fmt: skip


def model_of(config):
    model = BartModel(BartConfig(**{key: config[key] for key in KEYS if key in config}))
    adapters.init(model)
    reduction = model.config.d_model / 64
    model.add_adapter("task", config=adapters.SeqBnConfig(reduction_factor=reduction))
    model.train_adapter("task")
    return model


def size(config):
    model = model_of(config)
    with tempfile.TemporaryDirectory() as folder:
        model.save_adapter(folder, "task", with_head=False)
        weights = [f for f in Path(folder).iterdir() if f.suffix in (".bin", ".safetensors")]
        numbers = sum(p.numel() for p in model.parameters() if p.requires_grad)
        return {"bytes": sum(f.stat().st_size for f in weights), "numbers": numbers}


def step(rows, length, config, device="cpu"):
    """The quicker of eager and compiled; bfloat16 on a GPU, as ours is there."""
    torch.set_num_threads(1)
    cuda = device == "cuda"
    kind = {"device": device, "dtype": torch.bfloat16 if cuda else torch.float32}
    model = model_of(config).train().to(**kind)
    head = torch.nn.Linear(model.config.d_model, 3).to(**kind)
    kept = [p for p in [*model.parameters(), *head.parameters()] if p.requires_grad]
    optimiser = torch.optim.AdamW(kept, lr=1e-4, fused=True)
    ids = torch.randint(10, 4000, (rows, length), device=device)
    gold = torch.arange(rows, device=device) % 3
    found = {"eager": timed(model, head, optimiser, ids, gold, cuda)}
    if cuda:
        try:
            found["compiled"] = timed(torch.compile(model), head, optimiser, ids, gold, cuda)
        except Exception as problem:  # whatever the compiler meets, the eager peer is still there
            found["not compiled"] = f"{type(problem).__name__}: {problem}"[:200]
    times = {name: value for name, value in found.items() if isinstance(value, float)}
    return {"ms": min(times.values()), "ways": found}


def timed(model, head, optimiser, ids, gold, cuda):
    clock = time.perf_counter if cuda else time.process_time
    found = []
    for turn in range(12):
        if cuda:
            torch.cuda.synchronize()
        begin = clock()
        optimiser.zero_grad(set_to_none=True)
        states = model(input_ids=ids, attention_mask=torch.ones_like(ids), decoder_input_ids=ids)[0]
        torch.nn.functional.cross_entropy(head(states.mean(dim=1)), gold).backward()
        optimiser.step()
        if cuda:
            torch.cuda.synchronize()
        if turn >= 3:
            found.append(1e3 * (clock() - begin))
    return statistics.median(found)


if __name__ == "__main__":
    told = {"step": step, "size": size}[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps({**told, "versions": {name: version(name) for name in ("adapters", "transformers", "torch")}}))
