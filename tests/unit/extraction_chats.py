"""Whole answers as chat, reasoning and small models give them, beside the single marks of extraction_cases.

Written for these tests. Holds no assertion.
"""

from __future__ import annotations

from extraction_cases import CODE, DEMO, IMPORTS, KERNEL, MODULE, OLD, PROSE, STUB, WRAPPER, Case, fence, tag

IMPORT_ALL = "from kernel import *\n"
FUTURE = "from __future__ import annotations\n"
PLAN = "### Plan\n\n1. **Shape**: `x` is contiguous.\n2. **Grid**: $\\lceil n / 256 \\rceil$ programs.\n\n"
REFERENCE = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x / 2\n"
INHERITS = """
class ModelNew(Model):
    def forward(self, x):
        out = torch.empty_like(x)
        halve_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
"""
AUTOTUNED = CODE.replace(
    "@triton.jit", "@triton.autotune(configs=[triton.Config({}, num_warps=n) for n in (2, 4)], key=['n'])\n@triton.jit"
)
GUARDED = IMPORTS + KERNEL + "if True:\n" + WRAPPER.strip().replace("\n", "\n    ").join(["    ", "\n"])
TABLE = "| block | time |\n|---|---|\n| 256 | 1.0 |\n\n"
CHANNELS = "<|channel|>analysis<|message|>Halve it.<|end|><|start|>assistant<|channel|>final<|message|>"

CHATS = {
    # Chat models: headings, lists, tables, several versions.
    "plan, code, notes": Case(f"{PLAN}### Code\n\n{fence(CODE)}\n### Notes\n\n- {PROSE}- done\n", CODE, "fence"),
    "code in bold headings with a table": Case(f"**Result**\n\n{TABLE}{fence(CODE)}\n{TABLE}", CODE, "fence"),
    "two versions, the later one better": Case(
        f"## Version 1 (simple)\n{fence(OLD)}\n## Version 2 (fast)\n{fence(CODE)}", CODE, "fence"
    ),
    "a sketch of a further version": Case(
        f"{fence(CODE)}\nA faster one would be:\n{fence(KERNEL + STUB)}", CODE, "fence"
    ),
    "a diff before": Case(fence("-    x * 0.25\n+    x * 0.5\n", "```diff") + fence(CODE), CODE, "fence"),
    "inline code and formulas around": Case(
        f"Use `tl.load` and $x/2$.\n{fence(CODE)}`BLOCK=256` works.", CODE, "fence"
    ),
    "HTML around": Case(f"<details><summary>Code</summary>\n\n{fence(CODE)}\n</details>\n", CODE, "fence"),
    "file name in the label": Case(fence(CODE, "```python:kernel.py"), CODE, "fence"),
    "file name above": Case(f"`kernel.py`\n{fence(CODE)}`test.py`\n{fence(IMPORT_ALL + DEMO)}", CODE, "fence"),
    "contract repeated first": Case(tag("# imports, kernels, entry point\n") + PROSE + tag(CODE), CODE, "triton_tag"),
    "contract repeated last": Case(fence(CODE) + "as asked:\n" + tag("# the file above\n"), CODE, "fence"),
    "reference quoted and inherited from": Case(
        fence(REFERENCE) + fence(IMPORTS + KERNEL + INHERITS), REFERENCE + IMPORTS + KERNEL + INHERITS, "fence+joined"
    ),
    "reference quoted, answer complete": Case(fence(REFERENCE) + fence(CODE + MODULE), CODE + MODULE, "fence"),
    "autotuned": Case(fence(AUTOTUNED), AUTOTUNED, "fence"),
    "wrapper under a condition": Case(fence(GUARDED), GUARDED, "fence"),
    "future import in the wrapper's block": Case(
        fence(IMPORTS + KERNEL) + fence(FUTURE + WRAPPER), FUTURE + IMPORTS + KERNEL + WRAPPER, "fence+joined"
    ),
    "wrapper corrected below its kernel": Case(
        fence(OLD.replace("empty_like(x)", "empty(x)")) + f"The allocation was wrong:\n{fence(WRAPPER)}",
        OLD.replace("empty_like(x)", "empty(x)") + WRAPPER,
        "fence+joined",
    ),
    # Reasoning models: drafts, channels, marks left over.
    "several drafts in the thinking": Case(
        f"<think>\nFirst:\n{fence(OLD)}No mask?\n{tag(OLD)}Better:\n{fence(CODE[:200])}OK.\n</think>\n\n{tag(CODE)}",
        CODE,
        "triton_tag",
    ),
    "thinking that talks of tags": Case(
        f"<think>The file goes between `<triton>` and `</triton>`.</think>\n{tag(CODE)}", CODE, "triton_tag"
    ),
    "thinking with an open fence": Case(f"<think>\n```python\n{OLD}\n</think>\n{fence(CODE)}", CODE, "fence"),
    "channels left in the text": Case(CHANNELS + fence(CODE).rstrip(), CODE, "fence"),
    "end mark inside a string": Case(fence(CODE + 'END = "<|im_end|>"\n'), CODE + 'END = "<|im_end|>"\n', "fence"),
    "draft in another channel": Case(CHANNELS.replace("Halve it.", fence(OLD)) + fence(CODE), CODE, "fence"),
    "answer tags": Case(f"<answer>\n{CODE}</answer>\n", CODE, "bare"),
    "answer tags around a fence": Case(f"<answer>\n{fence(CODE)}</answer>", CODE, "fence"),
    "code in brackets": Case(f"[PYTHON]\n{CODE}[/PYTHON]\n", CODE, "bare"),
    "end mark behind the fence": Case(fence(CODE).rstrip() + "<|im_end|>", CODE, "fence"),
    "end mark behind bare code": Case(f"{CODE}<|endoftext|>", CODE, "bare"),
    "end mark behind an open tag": Case(f"<triton>\n{CODE}<|im_end|>", CODE, "triton_tag+unclosed"),
    # Small models: slips of the format.
    "opening mark within a line": Case(f"Here it is: ```python\n{CODE}```\nDone.", CODE, "bare"),
    "prose on the closing mark's line": Case(f"```python\n{CODE}```This halves it.\n", CODE, "fence+unclosed+prose"),
    "tag closed by an opening tag": Case(f"<triton>\n{CODE}<triton>\n", CODE, "triton_tag"),
    "tag with an attribute": Case(f'<triton lang="python">\n{CODE}</triton>', CODE, "triton_tag"),
    "tag opened, fence closed": Case(f"<triton>\n{CODE}```\n", CODE, "triton_tag+unclosed+prose"),
    "fence opened, tag closed": Case(f"```python\n{CODE}</triton>\n", CODE, "fence+unclosed+prose"),
    "the same block over and over": Case(fence(CODE) * 6, CODE, "fence"),
    "an example copied, then the answer": Case(fence(CODE.replace("halve", "other")) + fence(CODE), CODE, "fence"),
    "an indented block of Markdown": Case(
        PROSE + "\n    " + CODE.replace("\n", "\n    ").rstrip() + "\n\n" + PROSE, CODE, "bare+mended"
    ),
    "the whole answer quoted": Case("> " + fence(CODE).rstrip().replace("\n", "\n> ") + "\n", CODE, "fence+mended"),
    "full-width punctuation": Case(fence(CODE.replace("wrapper(x):", "wrapper（x）：")), CODE, "fence+mended"),
    "fence marks in a comment": Case(fence("# ```python\n" + CODE), CODE, "fence"),
    "a docstring of the other kind": Case(
        fence(CODE.replace("    out =", "    '''See\n    ```\n    x / 2\n    ```\n    '''\n    out =")),
        CODE.replace("    out =", "    '''See\n    ```\n    x / 2\n    ```\n    '''\n    out ="),
        "fence",
    ),
    "BOM, CRLF and a fence": Case("\ufeff" + fence(CODE).replace("\n", "\r\n"), CODE, "fence"),
    "a question at the end": Case(fence(CODE) + "\nShall I also write `class ModelNew`?\n", CODE, "fence"),
    "a benchmark with a wrapper of its own": Case(
        fence(CODE) + fence("import time\ndef bench():\n    t = time.time()\n    triton_kernel_wrapper(1)\n"),
        CODE,
        "fence",
    ),
}
