"""Rows as the index command takes them: compilers' kernels, entry points, programs without words, other languages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.synthetic_pairs import pairs
from kb_ray.bench.static import check_static
from kb_ray.errors import ConfigError
from kb_ray.index import main
from kb_ray.prompts.opening import PromptSetting
from kb_ray.raicl import Examples, ExampleSettings
from kb_ray.retrieve import corpus
from kb_ray.retrieve.corpus import Wanted, read_corpus
from kb_ray.retrieve.example import Example
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.lexical import LexicalSearch
from kb_ray.retrieve.search import Limits, Search
from kb_ray.tasks.rows import row_task
from kb_ray.traces.store import LocalStore
from tests.unit.retrieve.material import lexical_build, rows_of
from tests.unit.training import compiled

PAIR = next(iter(pairs(1, 0)))
GOOD = {"pytorch_code": PAIR.pytorch_code, "triton_code": PAIR.triton_code}
CUDA = "__global__ void k(float* x) { x[0] = 1.0f; }\n"
SWISH = "class Swish(nn.Module):\n    def forward(self, x):\n        return x * torch.sigmoid(x)\n"
TAIL = """

class Tail(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm2d(4)
    def forward(self, x):
        return torch.tanh(self.bn(x)).mean(dim=1)
"""
IMPORTS = "import torch\nimport torch.nn as nn\n\n\n"
INPUTS = "\n\ndef get_inputs():\n    return [torch.rand([4, 4])]\n\n\ndef get_init_inputs():\n    return [[], {}]\n"


def jsonl(path: Path, *rows: dict[str, object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"file:{path}"


def build(folder: Path, *rows: dict[str, object], more: tuple[str, ...] = ()) -> tuple[int, str]:
    spec, output = jsonl(folder / "p.jsonl", *rows), str(folder / "index")
    return main(["--corpus", spec, "--embed-with", "lexical", "--output", output, *more]), output


def test_kernels_of_the_compiler_are_shown_in_plain_pytorch_and_what_the_rules_refuse_is_left_out(
    tmp_path: Path,
) -> None:
    library = compiled.KERNEL.replace("        del arg0_1\n", "        extern_kernels.mm(arg0_1, arg1_1, out=buf0)\n")
    forbidden = PAIR.triton_code.replace("import torch\n", "import torch\nimport subprocess\n", 1)
    unnamed = "import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n"
    compilers = {"pytorch_code": compiled.PROGRAM, "triton_code": compiled.KERNEL, "entry_point": "Blend"}
    rows = [compilers, *({**GOOD, "triton_code": code} for code in (library, forbidden, unnamed))]
    code, output = build(tmp_path, *rows)
    index = Index(output)
    assert (code, len(index)) == (0, 1)
    shown = index.example(0).kernel_code
    assert check_static(shown) is None
    assert "ModelNew = BlendNew" in shown
    assert "torch._C" not in shown
    assert index.info.corpora[0].dropped == {
        "kernel is computed by PyTorch": 1, "kernel breaks the verifier's rules": 1,
        "kernel has no entry point or no Triton kernel": 1,
    }  # fmt: skip


@pytest.mark.parametrize("other_tail", [False, True])
def test_a_rows_entry_point_decides_what_its_program_and_the_task_are(tmp_path: Path, other_tail: bool) -> None:
    kernel = PAIR.triton_code
    spec = jsonl(
        tmp_path / "p.jsonl",
        {"python_code": IMPORTS + SWISH + TAIL + INPUTS, "triton_code": kernel, "entry_point": "Swish"},
    )
    lexical_build(LocalStore(str(tmp_path / "index")), rows_of(spec)).run()
    tail = TAIL.replace("tanh", "sin").replace("BatchNorm2d", "InstanceNorm2d") if other_tail else ""
    task = row_task(
        {"python_code": IMPORTS + SWISH + tail + INPUTS, "entry_point": "Swish"}, code_column="python_code",
        source="kernelbook", default_name="r", task_id="kernelbook/1", init_convention="args_kwargs",
    )  # fmt: skip
    examples = Examples(ExampleSettings(index=str(tmp_path / "index"), count=1))
    _, retrieved = examples.opening(task, PromptSetting(template="raicl", device="cpu"))
    assert (retrieved.examples, retrieved.leaks) == ((), 1)


@pytest.mark.parametrize("program", ["# nothing", "()", "x = 1\n", "import torch\n"])
def test_a_program_that_defines_nothing_is_refused_as_a_row(tmp_path: Path, program: str) -> None:
    code, output = build(tmp_path, {**GOOD, "pytorch_code": program}, GOOD)
    assert code == 0
    assert Index(output).info.corpora[0].dropped == {"program defines nothing": 1}


def test_a_search_by_words_among_none_gives_zeros() -> None:
    assert LexicalSearch(["()", ""]).scores("relu").tolist() == [0.0, 0.0]
    assert LexicalSearch(["()", "def f"]).scores("f").tolist()[1] > 0


def test_a_mark_in_a_files_name_does_not_make_all_its_rows_one_task(tmp_path: Path) -> None:
    found = list(pairs(60, 1))
    rows = [{"pytorch_code": pair.pytorch_code, "triton_code": pair.triton_code} for pair in found]
    store = LocalStore(str(tmp_path / "index"))
    lexical_build(store, rows_of(jsonl(tmp_path / "pairs#1.jsonl", *rows))).run()
    shown, told = Search(Index(store.uri), lambda e: 1).examples(
        found[0].pytorch_code, Limits(3, 10**6, 0.9), "file/pairs#1_0"
    )
    assert len(shown) == 3
    assert told.leaks < 10


def test_ids_that_end_in_a_number_of_their_own_are_tasks_of_their_own(tmp_path: Path) -> None:
    found = list(pairs(60, 1))
    rows = rows_of(
        jsonl(tmp_path / "p.jsonl", *({"pytorch_code": p.pytorch_code, "triton_code": p.triton_code} for p in found))
    )
    named = [
        e.model_copy(update={"example_id": f"set#{n}"})
        for n, e in enumerate(next(iter(rows.values())))
        if not isinstance(e, str)
    ]
    store = LocalStore(str(tmp_path / "index"))
    lexical_build(store, {"x": iter(named)}).run()
    shown, _ = Search(Index(store.uri), lambda e: 1).examples(found[0].pytorch_code, Limits(3, 10**6, 0.9), "set#0")
    assert len(shown) == 3
    shown, told = Search(Index(store.uri), lambda e: 1).examples(found[0].pytorch_code, Limits(3, 10**6, 0.9), "set")
    assert (shown, told.leaks) == ([], 60), "numbers at the end may also tell examples of one task apart"


def test_a_kernel_of_another_language_than_is_wanted_is_said_to_be_so(tmp_path: Path) -> None:
    spec = jsonl(tmp_path / "p.jsonl", GOOD, {**GOOD, "triton_code": None})
    assert list(read_corpus(spec, Wanted(frozenset({"cuda"})))) == ["of another language", "kernel is missing"]


def test_a_wrong_kernel_is_not_shown_for_a_program_with_a_right_one_that_does_not_fit(tmp_path: Path) -> None:
    rows = rows_of(jsonl(tmp_path / "p.jsonl", GOOD))
    example = next(e for e in next(iter(rows.values())) if not isinstance(e, str))
    long = example.model_copy(update={"correct": True, "kernel_code": "k" * 900})
    wrong = example.model_copy(update={"example_id": "wrong", "correct": False, "kernel_code": "k" * 100})
    asked = "import torch\ndef reference_impl(x):\n    return torch.fft.fft(x)\n"
    for number, (held, shown) in enumerate([([long, wrong], []), ([wrong], ["wrong"])]):
        store = LocalStore(str(tmp_path / f"index{number}"))
        lexical_build(store, {"x": iter(held)}).run()
        found, _ = Search(Index(store.uri), lambda e: len(e.kernel_code)).examples(asked, Limits(1, 500, 0.9))
        assert [e.example_id for e in found] == shown


def test_what_is_advised_instead_of_the_archive_is_what_a_file_may_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(dataset: str, split: str, instead: str) -> None:
        raise ConfigError(f"{dataset}: {instead}")

    monkeypatch.setattr(corpus, "load_split", unreachable)
    with pytest.raises(ConfigError, match=r"--corpus file:PATH.*under the names pytorch_code and cuda_code"):
        read_corpus("sakana", Wanted())
    spec = jsonl(tmp_path / "p.jsonl", {"pytorch_code": PAIR.pytorch_code, "cuda_code": CUDA})
    assert [isinstance(found, Example) for found in read_corpus(spec, Wanted())] == [True]
