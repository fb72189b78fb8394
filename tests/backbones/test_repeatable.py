"""Kernels that add in a fixed order are asked for, only as long as needed, and done without where there are none."""

from __future__ import annotations

import pytest
import torch

from tss.backbones.repeatable import Repeatable, gradients, prepare

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture
def as_on_a_gpu():
    repeatable = Repeatable(torch.device("cuda"))  # the switches are the process's, with or without a GPU
    assert repeatable.on
    yield repeatable
    assert not torch.are_deterministic_algorithms_enabled()


def test_on_a_cpu_nothing_is_switched():
    repeatable = Repeatable(torch.device("cpu"))
    assert repeatable(torch.are_deterministic_algorithms_enabled) is False


def test_switched_on_inside_and_put_back_outside(as_on_a_gpu):
    assert as_on_a_gpu(torch.are_deterministic_algorithms_enabled) is True
    assert not torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        assert as_on_a_gpu(torch.is_deterministic_algorithms_warn_only_enabled) is False
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_an_operation_without_such_a_kernel_is_done_as_it_is_and_said(as_on_a_gpu):
    calls = []

    def operation(x: int) -> int:
        calls.append(torch.are_deterministic_algorithms_enabled())
        if calls[-1]:
            raise RuntimeError("odd_cuda does not have a deterministic implementation, but you set …\nmore")
        return x + 1

    assert [as_on_a_gpu(operation, x) for x in (1, 2)] == [2, 3]
    assert calls == [True, False, False] and "odd_cuda" in as_on_a_gpu.trouble


def test_other_errors_are_not_swallowed(as_on_a_gpu):
    def broken() -> None:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="memory"):
        as_on_a_gpu(broken)
    assert as_on_a_gpu.on


def test_gradients_are_those_of_autograd():
    x, y = torch.tensor([2.0], requires_grad=True), torch.tensor([1.0], requires_grad=True)
    first, second = gradients(lambda: (x * x).sum(), [x, y], unused=True)
    assert first.tolist() == [4.0] and second is None


@pytest.mark.gpu
@needs_gpu
def test_attention_over_long_texts_gives_the_same_gradient_every_time():
    prepare()
    generator = torch.Generator(device="cuda").manual_seed(0)
    q, k, v = (
        torch.randn(16, 4, 640, 72, device="cuda", dtype=torch.bfloat16, generator=generator).requires_grad_()
        for _ in range(3)
    )
    mask = torch.ones(16, 1, 640, 640, device="cuda", dtype=torch.bool)
    mask[..., 500:] = False
    torch.backends.cuda.enable_cudnn_sdp(False)

    def loss() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).float().square().sum()

    first = gradients(loss, [q, k, v])
    for _ in range(8):
        assert all(torch.equal(a, b) for a, b in zip(first, gradients(loss, [q, k, v]), strict=True))
