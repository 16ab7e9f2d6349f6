"""A checkpoint answers whole or not at all: what is missing, damaged or of another model is one line that names it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb_ray import checkpoints, local_checkpoints
from kb_ray.checkpoints import Checkpoint
from kb_ray.errors import ConfigError
from kb_ray.learn.network import base_weights
from kb_ray.model import in_process
from kb_ray.model.in_process import InProcessCompleter
from kb_ray.traces.store import LocalStore
from tests.unit.learn import tiny

WEIGHTS, ADAPTER, CONFIG = "model.safetensors", "adapter_model.safetensors", "adapter_config.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model`, `tied` (without the weights that it takes from its embeddings), and `lora` over `model`."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("checkpoints")
    model = tiny.make_model(folder / "model")
    shutil.copytree(model, folder / "tied")
    rewrite(folder / "tied" / "config.json", tie_word_embeddings=True)
    weights(folder / "tied" / WEIGHTS, lambda name: None if name == "lm_head.weight" else name)
    settings = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    get_peft_model(AutoModelForCausalLM.from_pretrained(model), settings).save_pretrained(folder / "lora")
    return folder


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def weights(path: Path, named: Callable[[str], str | None]) -> None:
    """The file again, each tensor under another name, or left out."""
    from safetensors.torch import load_file, save_file

    held = load_file(path)
    save_file({new: held[name] for name in held if (new := named(name))}, path, metadata={"format": "pt"})


def spoilt(path: Path, value: float) -> None:
    """The file again, one number of one tensor another."""
    from safetensors.torch import load_file, save_file

    held = load_file(path)
    next(iter(held.values())).view(-1)[0] = value
    save_file(held, path, metadata={"format": "pt"})


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


async def check(folder: Path) -> None:
    await InProcessCompleter(str(folder), local=True).check()


@pytest.mark.parametrize("name", ["model", "tied", "lora"])
async def test_a_whole_checkpoint_is_loaded(whole: Path, name: str) -> None:
    await check(whole / name)


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("model", lambda at: weights(at / WEIGHTS, lambda name: None if "layers.1." in name else name),
         r"is not whole: its file of weights lacks model\.layers\.1\..* and \d+ more; copy or save"),
        ("model", lambda at: weights(at / WEIGHTS, lambda name: name.replace("lm_head", "lm_tail")),
         r"lacks lm_head\.weight and holds, for no layer of this model, lm_tail\.weight"),
        ("model", lambda at: rewrite(at / "config.json", num_hidden_layers=1), r"for no layer .* model\.layers\.1\."),
        ("model", lambda at: rewrite(at / "config.json", hidden_size=64), r"in another size than .* lm_head\.weight"),
        ("model", lambda at: cut(at / WEIGHTS), r"cannot be loaded: its weights: SafetensorError"),
        ("model", lambda at: spoilt(at / WEIGHTS, float("nan")), r"are NaN or infinite in [\w.]+; copy or save"),
        ("lora", lambda at: spoilt(at / ADAPTER, float("nan")), r"weights are NaN or infinite in .*lora_A"),
        ("lora", lambda at: spoilt(at / ADAPTER, float("inf")), r"weights are NaN or infinite in .*lora_A"),
        ("model", lambda at: (at / WEIGHTS).unlink(), r"cannot be loaded: its weights: .*model\.safetensors"),
        ("model", lambda at: cut(at / "config.json"), r"cannot be loaded: config\.json: "),
        ("model", lambda at: (at / "config.json").write_text("[]"), r"cannot be loaded: config\.json: "),
        ("model", lambda at: (at / "tokenizer.json").write_text("{}"), r"cannot be loaded: its tokenizer: "),
        ("lora", lambda at: weights(at / ADAPTER, lambda name: name.replace("q_proj", "other")),
         r"is not whole: its file of weights lacks .*q_proj.* and holds, for no layer of this model, .*other"),
        ("lora", lambda at: weights(at / ADAPTER, lambda name: None if "layers.1." in name else name),
         r"lacks .*layers\.1\."),
        ("lora", lambda at: rewrite(at / "adapter_config.json", r=8), r"adapter_model\.safetensors: RuntimeError"),
        ("lora", lambda at: rewrite(at / "adapter_config.json", peft_type="WHAT"), r"adapter_config\.json or .*WHAT"),
        ("lora", lambda at: rewrite(at / "adapter_config.json", base_model_name_or_path=None), r"names no base model"),
        ("lora", lambda at: (at / "adapter_config.json").write_text("[]"), r"adapter_config\.json names no base model"),
        ("lora", lambda at: cut(at / ADAPTER), r"adapter_model\.safetensors: SafetensorError"),
        ("lora", lambda at: (at / ADAPTER).unlink(), r"holds no adapter_model\.safetensors"),
    ],
)  # fmt: skip
async def test_a_damaged_checkpoint_is_one_line_that_names_the_file(
    whole: Path, tmp_path: Path, name: str, damage: Callable[[Path], None], said: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole / name, folder)
    damage(folder)
    with pytest.raises(ConfigError, match=said) as caught:
        await check(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")])
@pytest.mark.parametrize("what", ["AutoModelForCausalLM.from_pretrained", "PreTrainedModel.to"])
async def test_a_checkpoint_too_large_for_the_memory_is_not_said_to_be_damaged(
    whole: Path, what: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(f"transformers.{what}", full)
    with pytest.raises(
        ConfigError, match=r"does not fit into memory \(.*: run where there is more, or serve it"
    ) as caught:
        await check(whole / "model")
    assert "\n" not in str(caught.value)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A training run's folder with one checkpoint; its base is a folder of its own."""
    shutil.copytree(whole / "model", tmp_path / "base")
    store = LocalStore(str(tmp_path / "run"))
    rewritten = json.loads((whole / "lora" / "adapter_config.json").read_text())
    rewritten["base_model_name_or_path"] = str(tmp_path / "base")
    files = {f"adapter/{path.name}": path.read_bytes() for path in (whole / "lora").iterdir()}
    files |= {"adapter/adapter_config.json": json.dumps(rewritten).encode(), "state.pt": b"state"}
    base = str(tmp_path / "base")
    told = Checkpoint(step=3, base_model=base, base_hash=checkpoints.base_hash(base), fingerprint="f")
    checkpoints.save(store, told, files)
    return tmp_path / "run"


@pytest.mark.parametrize("named", ["", "checkpoints/step000003", "checkpoints/step000003/adapter"])
async def test_a_runs_checkpoint_is_what_the_run_wrote_however_it_is_named(run: Path, named: str) -> None:
    await check(run / named)
    spoilt(run / "checkpoints/step000003/adapter" / ADAPTER, 0.125)
    with pytest.raises(ConfigError, match=r"adapter_model\.safetensors is not what the run wrote: copy"):
        await check(run / named)


async def test_a_runs_checkpoint_on_s3_is_the_same_model_as_in_a_folder(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_checkpoints, "open_store", lambda uri: LocalStore(str(run)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remote = InProcessCompleter("s3://bucket/run", local=True)
    assert remote.model == InProcessCompleter(str(run), local=True).model
    assert remote.model.startswith("run-step000003@")
    (run / "checkpoints/step000003/adapter" / ADAPTER).unlink()
    await remote.check()


async def test_a_checkpoint_that_is_not_whole_or_whose_base_is_another_model_is_refused(
    run: Path, tmp_path: Path
) -> None:
    adapter = run / "checkpoints/step000003/adapter"
    # State is for going on with training: nobody needs it for an answer.
    (adapter.parent / "state.pt").unlink()
    await check(run)
    rewrite(tmp_path / "base" / "config.json", rms_norm_eps=0.5)
    with pytest.raises(ConfigError, match=r"the checkpoint of step 3 was trained on .*base, not on"):
        await check(run)
    (adapter / "tokenizer_config.json").unlink(missing_ok=True)
    (adapter / "adapter_config.json").rename(adapter / "kept.json")
    with pytest.raises(ConfigError, match="is no checkpoint"):
        await check(run)
    (adapter / "kept.json").rename(adapter / "adapter_config.json")
    (adapter.parent / "checkpoint.json").unlink()
    with pytest.raises(ConfigError, match=r"not written to its end, .*checkpoint\.json is missing"):
        await check(adapter)


@pytest.fixture
def known(whole: Path, tmp_path: Path) -> Path:
    """The folder of a base model whose weights the only checkpoint of the run beside it, in `run`, knows."""
    from transformers import AutoModelForCausalLM

    base = Path(shutil.copytree(whole / "model", tmp_path / "base"))
    rewrite(Path(shutil.copytree(whole / "lora", tmp_path / "lora")) / CONFIG, base_model_name_or_path=str(base))
    files = {f"adapter/{path.name}": path.read_bytes() for path in (tmp_path / "lora").iterdir()}
    told = Checkpoint(
        step=3, base_model=str(base), base_hash=checkpoints.base_hash(str(base)), fingerprint="f",
        base_weights=base_weights(AutoModelForCausalLM.from_pretrained(base)),
    )  # fmt: skip
    checkpoints.save(LocalStore(str(tmp_path / "run")), told, files)
    return base


async def test_other_weights_of_the_same_shape_are_not_judged_in_place_of_a_base(known: Path, tmp_path: Path) -> None:
    await check(tmp_path / "run")
    shutil.copy(tiny.make_model(tmp_path / "other", seed=1) / WEIGHTS, known / WEIGHTS)
    with pytest.raises(ConfigError, match=r"not on the model that lies there now \(weights\): give that model"):
        await check(tmp_path / "run")


async def test_a_base_whose_weights_are_the_same_is_the_same_however_its_configuration_is_written(
    known: Path, tmp_path: Path
) -> None:
    rewrite(known / "config.json", a_later_versions="setting")
    await check(tmp_path / "run")


async def test_a_base_that_the_adapter_does_not_fit_is_said_to_be_another(known: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny.make_model(tmp_path / "wider", hidden=48), known, dirs_exist_ok=True)
    with pytest.raises(ConfigError, match=r"not on the model that lies there now \(config\.json\)"):
        await check(tmp_path / "run")


@pytest.mark.parametrize(
    ("named", "kept", "said"),
    [
        ("smollm2", True, "in the folder smollm2, and is not there: .* start from the folder where the training was"),
        ("{gone}", True, r"in the folder {gone}, and is not there: put it, or a link to it, there, or serve the"),
        ("{gone}", False, r"in the folder {gone}, and is not there: put it"),
        ("~nobody-here/m", False, r"in the folder ~nobody-here/m, and is not there"),
    ],
)
async def test_a_base_whose_folder_is_gone_is_named_and_none_of_that_name_is_asked_of_the_hub(
    whole: Path, tmp_path: Path, named: str, kept: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "load", lambda source: pytest.fail("it was looked for"))
    monkeypatch.chdir(tmp_path)
    gone = str(tmp_path / "gone")
    adapter = Path(shutil.copytree(whole / "lora", tmp_path / "lora"))
    rewrite(adapter / CONFIG, base_model_name_or_path=named.format(gone=gone))
    if kept:
        told = Checkpoint(step=3, base_model="it", base_hash="h", fingerprint="f")
        files = {f"adapter/{path.name}": path.read_bytes() for path in adapter.iterdir()}
        checkpoints.save(LocalStore(str(tmp_path / "run")), told, files)
    with pytest.raises(ConfigError, match=said.format(gone=gone)) as caught:
        await check(tmp_path / "run" if kept else adapter)
    assert "\n" not in str(caught.value)


async def test_the_home_of_nobody_holds_no_checkpoint() -> None:
    with pytest.raises(ConfigError, match="~nobody-here/run is no checkpoint"):
        InProcessCompleter("~nobody-here/run", local=True)


@pytest.mark.parametrize(("size", "changed"), [(5 << 20, 1), (3 << 30, 100 << 20)])
def test_the_same_folder_with_other_weights_is_another_model(tmp_path: Path, size: int, changed: int) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / WEIGHTS
    with weights.open("wb") as file:
        # Holes take no room on the disk.
        file.truncate(size)
    before = InProcessCompleter(str(tmp_path), local=True).model
    assert InProcessCompleter(str(tmp_path), local=True).model == before
    with weights.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\1" * changed)
    assert InProcessCompleter(str(tmp_path), local=True).model != before
