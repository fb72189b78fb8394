"""How a name becomes a backbone, and what is said when it cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import tiny_path

from tss.backbones import load
from tss.backbones.load import available, load_backbone, resolve
from tss.errors import BackboneError


@pytest.fixture
def shelves(tmp_path, monkeypatch) -> dict[str, Path]:
    """Three empty shelves in place of the real ones."""
    made = {name: tmp_path / name for name in ("embedded", "named", "checkout")}
    for folder in made.values():
        folder.mkdir()
    monkeypatch.setattr(load, "_EMBEDDED", made["embedded"])
    monkeypatch.setattr(load, "_CHECKOUT", made["checkout"])
    monkeypatch.setenv("TSS_BACKBONES", str(made["named"]))
    return made


def put(shelf: Path, name: str) -> Path:
    (shelf / name).mkdir()
    (shelf / name / "config.json").write_text("{}")
    return shelf / name


def copy(family: str, to: Path) -> Path:
    return Path(shutil.copytree(tiny_path(family), to))


def test_shelves_are_searched_in_order(shelves):
    """Embedded, then TSS_BACKBONES, then weights/; each hides the next."""
    expected = ("checkout", "named", "embedded")
    for shelf in expected:
        path = put(shelves[shelf], "bart-x")
        assert resolve("bart-x") == (str(path), True)
    assert list(available()) == ["bart-x"]


def test_several_folders_in_the_environment(shelves, monkeypatch, tmp_path):
    more = tmp_path / "more"
    more.mkdir()
    put(more, "other")
    monkeypatch.setenv("TSS_BACKBONES", f"{shelves['named']}:{more}")
    assert resolve("other") == (str(more / "other"), True)


def test_a_folder_is_a_backbone_by_its_path(shelves, tmp_path):
    path = put(tmp_path, "mine")
    assert resolve(str(path)) == (str(path), True)


def test_a_folder_without_config_is_none(shelves, tmp_path):
    (tmp_path / "empty").mkdir()
    for name in (str(tmp_path / "empty"), str(tmp_path / "absent"), "./absent"):
        with pytest.raises(BackboneError, match="config.json"):
            resolve(name)


def test_any_other_name_is_for_the_hub(shelves):
    assert resolve("facebook/bart-large") == ("facebook/bart-large", False)


def test_without_a_hub_the_error_says_where_to_get_it(shelves):
    put(shelves["named"], "at-hand")
    with pytest.raises(BackboneError) as error:
        load_backbone("facebook/bart-nowhere")
    for part in ("facebook/bart-nowhere", "TSS_BACKBONES", "hf download facebook/bart-nowhere", "at-hand"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_names_that_no_hub_has_are_refused_too(shelves):
    for name in ("no such model", "a/b/c", ""):
        with pytest.raises(BackboneError):
            load_backbone(name)


def test_only_safetensors_are_read(tmp_path):
    path = copy("bart", tmp_path / "bart")
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'echo'\ntR.")
    with pytest.raises(BackboneError, match="could not be loaded"):
        load_backbone(str(path))


def test_code_of_a_model_folder_is_never_run(tmp_path):
    path = copy("bart", tmp_path / "bart")
    config = json.loads((path / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    (path / "config.json").write_text(json.dumps(config))
    (path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    with pytest.raises(BackboneError):
        load_backbone(str(path))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("damage", ["short", "wild", "empty"])
def test_damaged_weights_are_refused(tmp_path, damage):
    path = copy("bert", tmp_path / "bert") / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes({"short": whole[: len(whole) // 2], "wild": b"\xff" * 500, "empty": b""}[damage])
    with pytest.raises(BackboneError, match="could not be loaded"):
        load_backbone(str(path.parent))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_damaged_text_files_are_refused(tmp_path, name):
    path = copy("bert", tmp_path / "bert")
    (path / name).write_text('{"half":')
    with pytest.raises(BackboneError):
        load_backbone(str(path))


def test_missing_weights_are_refused_not_drawn_at_random(tmp_path):
    path = copy("bart", tmp_path / "bart") / "model.safetensors"
    tensors = load_file(path)
    dropped = next(name for name in tensors if "decoder.layers.1.fc1.weight" in name)
    del tensors[dropped]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(BackboneError, match="not whole.*decoder.layers.1.fc1.weight"):
        load_backbone(str(path.parent))


def test_weights_of_another_shape_are_refused(tmp_path):
    path = copy("bart", tmp_path / "bart") / "model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if "decoder.layers.1.fc1.weight" in name)
    tensors[name] = torch.zeros(3, 3)
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(BackboneError):
        load_backbone(str(path.parent))


def test_an_unused_pooler_does_not_matter():
    """Hub checkpoints of BERT and RoBERTa often lack it; drawn at random it would make every load another backbone."""
    for family in ("bert", "roberta"):
        assert not any("pooler" in name for name in load_backbone(str(tiny_path(family))).tensors())


def test_an_unknown_architecture_is_refused(tmp_path):
    from transformers import OPTConfig

    OPTConfig(vocab_size=10, hidden_size=8, num_hidden_layers=1).save_pretrained(tmp_path / "opt")
    with pytest.raises(BackboneError, match="'opt'"):
        load_backbone(str(tmp_path / "opt"))


def test_unknown_sites_are_refused():
    with pytest.raises(BackboneError, match="houlsby"):
        load_backbone(str(tiny_path("bart")), places="everywhere")


def test_precision_is_of_the_backbone():
    backbone = load_backbone(str(tiny_path("bart")), dtype="bfloat16")
    assert {p.dtype for p in backbone.model.parameters()} == {torch.bfloat16}
    assert backbone.fingerprint() != load_backbone(str(tiny_path("bart"))).fingerprint()


def test_loading_says_nothing(capfd):
    load_backbone(str(tiny_path("bert")))
    out = capfd.readouterr()
    assert out.out == "" and out.err == ""
