"""Rows of pairs become answers that a verifier would run, and every row that does not is counted by its reason."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from kb_ray.bench.static import check_static
from kb_ray.errors import ConfigError
from kb_ray.extract import extract
from kb_ray.learn.chat import ChatTokens
from kb_ray.records import Candidate, Completion
from kb_ray.tasks import kernelbook
from kb_ray.training import sft_run
from kb_ray.training.dialogues import Clean, Dialogue, as_samples
from kb_ray.training.inductor import in_plain_pytorch
from kb_ray.training.pairs import Pairs, names_pairs, with_entry_point
from kb_ray.training.settings import SftSettings
from tests.unit.learn import tiny
from tests.unit.training.compiled import FUNCTION, HANDWRITTEN, HEAD, KERNEL, PROGRAM, ROW

HAND = {"pytorch_code": FUNCTION, "kernel_code": HANDWRITTEN, "input_shapes": {"x": {"shape": [8], "dtype": "float32"}}}


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local data set in KernelBook's place."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kernelbook, "DATASET", str(tmp_path / "book"))
    (tmp_path / "book").mkdir()
    return tmp_path / "book" / "train.jsonl"


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path, *rows: dict[str, Any]) -> tuple[list[Dialogue], dict[str, int]]:
    pairs = Pairs(f"file:{write(path, *rows)}")
    return list(pairs), dict(pairs.left_out)


def answer_of(dialogue: Dialogue) -> str:
    found = extract(Completion(text=dialogue.messages[-1]["content"], finish_reason="stop", model="m"))
    assert isinstance(found, Candidate)
    assert found.rule == "triton_tag"
    return found.code


def test_kernelbooks_rows_are_asked_about_and_answered_in_the_form_of_a_run(book: Path) -> None:
    write(book, ROW, ROW | {"triton_code": ""}, ROW)
    pairs = Pairs("kernelbook")
    found = list(pairs)
    assert [dialogue.task_id for dialogue in found] == ["kernelbook/0", "kernelbook/2"]
    assert [message["role"] for message in found[0].messages] == ["system", "user", "assistant"]
    asked = found[0].messages[1]["content"]
    assert PROGRAM.strip() in asked
    assert "built like `Blend`" in asked
    code = answer_of(found[0])
    assert check_static(code) is None
    assert "class ModelNew(nn.Module)" in code
    assert "BlendNew" not in code
    assert pairs.left_out == {"no kernel": 1}


def test_a_files_rows_keep_their_own_entry_point_and_their_inputs(tmp_path: Path) -> None:
    (found,), left_out = read(tmp_path / "mine.jsonl", HAND | {"kernel_code": HANDWRITTEN.replace("\n", "\r\n")})
    assert found.task_id == "file/mine_0"
    assert answer_of(found).strip() == HANDWRITTEN.strip()
    assert "- `x`: float32, shape [8]" in found.messages[-2]["content"]
    assert left_out == {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kernel_code": None}, "no kernel"),
        ({"kernel_code": "def triton_kernel_wrapper(x):\n    return x"}, "no kernel"),
        ({"kernel_code": HANDWRITTEN.replace("triton_kernel_wrapper", "run")}, "no kernel"),
        ({"kernel_code": HANDWRITTEN + "\nif"}, "no valid Python"),
        ({"kernel_code": HANDWRITTEN.replace("import torch\n", "import torch, subprocess\n", 1)}, "not allowed"),
        ({"kernel_code": HANDWRITTEN + "_END = '''\n<|im_end|>\n'''\n"}, "not found again in its answer"),
        ({"kernel_code": HANDWRITTEN + "\nextern_kernels.mm(1, 2)\n"}, "computed by PyTorch"),
        ({"pytorch_code": "def f(:"}, "no usable program"),
        ({"pytorch_code": None}, "no usable program"),
    ],
)
def test_a_row_without_a_use_is_left_out_by_its_reason(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    found, left_out = read(tmp_path / "rows.jsonl", HAND | change, HAND)
    assert len(found) == 1
    assert left_out == {reason: 1}


def test_loss_is_over_the_kernel_alone_and_an_evaluations_tasks_are_refused(tmp_path: Path) -> None:
    dialogues, _ = read(tmp_path / "rows.jsonl", HAND, HAND | {"pytorch_code": PROGRAM, "kernel_code": KERNEL})
    tokens = tiny.tokenizer()
    clean = Clean([PROGRAM])
    made = as_samples(clean(dialogues), ChatTokens(tokens), 8192)
    (sample,) = made.samples
    assert clean.refused == 1
    trained = [token for token, told in zip(sample.tokens, sample.trained, strict=True) if told]
    answer = tokens(dialogues[0].messages[-1]["content"], add_special_tokens=False)["input_ids"]
    assert trained == [*answer, tokens.eos_token_id]


def test_sft_learns_from_pairs_and_from_a_data_set_without_any_says_why(tmp_path: Path) -> None:
    model, said = tiny.make_model(tmp_path / "model"), list[str]()
    data = write(tmp_path / "rows.jsonl", *[HAND] * 3, HAND | {"kernel_code": ""})
    given = {
        "model_name": str(model), "output": str(tmp_path / "run"), "data": (f"file:{data}",), "samples": 2,
        "lora_rank": 8, "tensorboard_enabled": False,
    }  # fmt: skip
    assert sft_run.run(SftSettings.model_validate(given), said.append, "cpu") == 1
    assert any(line.startswith("samples:  2") for line in said)
    write(data, HAND | {"kernel_code": ""}, HAND | {"pytorch_code": "def f(:"})
    with pytest.raises(ConfigError, match=r"nothing to learn from in file:.*: 1 no kernel, 1 no usable program") as e:
        sft_run.run(SftSettings.model_validate(given | {"output": str(tmp_path / "other")}), said.append, "cpu")
    assert "\n" not in str(e.value)


def test_what_is_no_table_of_pairs_is_one_line(tmp_path: Path, book: Path) -> None:
    assert [names_pairs(spec) for spec in ("kernelbook", "file:a.jsonl", "runs/a", "s3://b/c")] == [
        True,
        True,
        False,
        False,
    ]
    with pytest.raises(ConfigError, match="no column triton_code or kernel_code or final_triton_code"):
        Pairs(f"file:{write(tmp_path / 'plain.jsonl', {'code': FUNCTION})}")
    write(book, {"python_code": PROGRAM})
    with pytest.raises(ConfigError, match="no column triton_code"):
        Pairs("kernelbook")
    with pytest.raises(ConfigError, match="it shows examples"):
        Pairs(f"file:{tmp_path / 'plain.jsonl'}", "raicl")


def test_a_class_is_renamed_only_where_nothing_counts_as_an_entry_point() -> None:
    assert with_entry_point(HANDWRITTEN, "Relu") == HANDWRITTEN
    two = "class ANew:\n    pass\nclass BNew:\n    x = ANew\n"
    assert with_entry_point(two, "A") == two.replace("ANew", "ModelNew")
    assert with_entry_point(two, "Elsewhere") == two.replace("BNew", "ModelNew")
    assert with_entry_point("x = 1\n", "A") == "x = 1\n"


def test_the_compilers_own_calls_become_plain_pytorch() -> None:
    plain = in_plain_pytorch(KERNEL)
    assert "torch._C" not in plain
    assert "from torch._inductor.runtime import triton_helpers" in plain
    assert "blend_kernel[triton.cdiv(16, 16),]" in plain
    assert "device = arg0_1.device" in plain
    assert "torch.empty_strided((4, 4), (4, 1), dtype=torch.float32, device=device)" in plain
    assert "buf0.as_strided((4, 4), (4, 1))" in plain
    two = HEAD + "k[grid(8, 6)](a, YBLOCK=2, XBLOCK=4)\nb = reinterpret_tensor(a, (2,), (1,), 4)\n"
    last = ast.unparse(ast.parse(in_plain_pytorch(two)).body[-2:])
    assert last == "k[triton.cdiv(6, 4), triton.cdiv(8, 2)](a, YBLOCK=2, XBLOCK=4)\n" \
        "b = a.as_strided((2,), (1,), a.storage_offset() + 4)"  # fmt: skip
    assert in_plain_pytorch(HANDWRITTEN) == HANDWRITTEN
