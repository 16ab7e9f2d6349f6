"""Extraction: answers that were cut while they gave their code anew, behind a version of it that is complete."""

from __future__ import annotations

import pytest
from extraction_cases import CODE, DEMO, IMPORTS, KERNEL, MODULE, OLD, PROSE, WRAPPER, fence, tag

from kb_ray.extract import extract
from kb_ray.records import Candidate, Completion, NoCandidate

OPEN = "New:\n```python\n"
TUNED = (
    IMPORTS
    + "\n@triton.autotune(\n    configs=[\n        triton.Config({'BLOCK': 256}),\n    ],\n    key=['n'],\n)"
    + KERNEL[:120]
)
SECOND_WRAPPER = WRAPPER.replace("256", "512")

CUT_ANEW = {
    "in the wrapper of a new file": fence(OLD) + OPEN + CODE[:-30],
    "in the kernel of a new file, behind what differs": fence(OLD) + OPEN + CODE[: CODE.index("0.5") + 3],
    "the same in tags": tag(OLD) + "New:\n<triton>\n" + CODE[:-30],
    "the same in a fence and bare": fence(OLD) + "New:\n\n" + CODE[:-30],
    "in a new file with a kernel of another name": fence(OLD) + OPEN + CODE.replace("halve", "scale")[:250],
    "in a kernel under two decorators": fence(OLD) + OPEN + TUNED,
    "in a kernel under a decorator of several lines": fence(OLD)
    + OPEN
    + IMPORTS
    + "@triton.jit(\n    debug=True,\n)\ndef k(",
    "in the kernel alone": fence(OLD) + OPEN + KERNEL.replace("n, BLOCK", "n, m, BLOCK")[:100],
    "in the wrapper alone": fence(OLD) + OPEN + SECOND_WRAPPER[:-20],
    "in the other entry point": fence(OLD) + OPEN + "import torch\n" + MODULE[:40],
    "in the wrapper as it was, behind a new kernel": fence(OLD) + fence(IMPORTS + KERNEL) + OPEN + WRAPPER[:60],
}


@pytest.mark.parametrize("text", CUT_ANEW.values(), ids=CUT_ANEW)
def test_an_old_version_is_not_the_answer_where_the_new_one_is_cut(text: str) -> None:
    found = extract(Completion(text=text, finish_reason="length", model="m"))
    assert isinstance(found, NoCandidate), found
    assert found.status == "truncated"
    assert "inside its code" in found.reason
    whole = extract(Completion(text=text, finish_reason="stop", model="m"))
    assert isinstance(whole, Candidate), "what ends by itself is taken as before"


CUT_BEHIND = {
    "in a usage block": "Usage:\n```python\nimport torch\nx = torch.ra",
    "in a test": f"```python\nimport torch\nimport triton\n\ndef test():\n    {DEMO[:30]}",
    "in a plain reference": "```python\nimport torch\n\ndef reference(x):\n    return x",
    "in a kernel of another name": "Or:\n```python\n" + KERNEL.replace("halve", "scale")[:100],
    "in the imports of another file": OPEN + IMPORTS[:40],
    "in a copy of the answer": OPEN + CODE[:-20],
    "in a copy of the answer's kernel": "The kernel again:\n```python\n" + KERNEL.lstrip()[:100],
    "in copies without end": fence(CODE) * 3 + OPEN + CODE[:90],
    "in copies in pieces": fence(IMPORTS + KERNEL) + fence(WRAPPER) + fence(IMPORTS + KERNEL) + OPEN + WRAPPER[:50],
    "in words about it": f"{PROSE}`def triton_kernel_wrapper` and `@triton.jit` are",
    "in another language": "```bash\npython -c 'import triton",
}


@pytest.mark.parametrize("rest", CUT_BEHIND.values(), ids=CUT_BEHIND)
def test_a_cut_behind_a_complete_answer_does_not_matter(rest: str) -> None:
    found = extract(Completion(text=fence(CODE) + rest, finish_reason="length", model="m"))
    assert isinstance(found, Candidate), found
    assert "0.5" in found.code
    assert found.code.count("def triton_kernel_wrapper") == 1


def test_a_loop_of_decorators_takes_no_longer_than_its_length() -> None:
    text = fence(CODE) + OPEN + "@triton.jit\n" * 20_000
    found = extract(Completion(text=text, finish_reason="length", model="m"))
    assert isinstance(found, Candidate)
