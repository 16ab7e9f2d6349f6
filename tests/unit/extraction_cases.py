"""Answers of many shapes, each with the code that is meant and the rule that should find it.

Written for these tests in the manner of chat, reasoning and small models. Holds no assertion.
"""

from __future__ import annotations

from dataclasses import dataclass

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"
KERNEL = """
@triton.jit
def halve_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 0.5, mask=at < n)
"""
WRAPPER = """
def triton_kernel_wrapper(x):
    out = torch.empty_like(x)
    halve_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
"""
MODULE = """
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return triton_kernel_wrapper(x)
"""
CODE = IMPORTS + KERNEL + WRAPPER
OLD = CODE.replace("0.5", "0.25")
DEMO = 'x = torch.randn(8, device="cuda")\nprint(triton_kernel_wrapper(x))\n'
PROSE = "The operation is elementwise, so each program handles one block.\n"
DOC = CODE.replace(
    "    out = torch",
    '    """Halves a tensor.\n\n    ```python\n    y = triton_kernel_wrapper(x)\n    ```\n    """\n    out = torch',
)
IN_STRING = CODE + 'MARK = "</triton>"\n'
IN_DOCSTRING = CODE.replace("    out = torch", '    """Stands in <triton> and\n    </triton>\n    """\n    out = torch')
IN_COMMENT = CODE.replace("    out = torch", "    # the answer ends with </triton>\n    out = torch")
OPENED_IN_COMMENT = CODE.replace("    out = torch", "    # behind <triton>\n    out = torch")
BEHIND_COMMENT = CODE + "\n# </triton> stands behind all of it\nSIZE = 256\n"
STUB = "def triton_kernel_wrapper(x):\n    ...\n"


def fence(code: str, mark: str = "```python") -> str:
    run = mark[: len(mark) - len(mark.lstrip("`~"))]
    return f"{mark}\n{code}{run}\n"


def tag(code: str) -> str:
    return f"<triton>\n{code}</triton>\n"


def numbered(code: str, form: str) -> str:
    return "".join(form.format(n, line).rstrip() + "\n" for n, line in enumerate(code.splitlines(), 1))


@dataclass(frozen=True)
class Case:
    text: str
    code: str
    rule: str


FOUND = {
    # One block, marked in every way.
    "tag": Case(PROSE + tag(CODE), CODE, "triton_tag"),
    "tag in capitals": Case(f"<TRITON>\n{CODE}</TRITON>", CODE, "triton_tag"),
    "tag on the code's lines": Case(f"<triton>{CODE.rstrip()}</triton>", CODE, "triton_tag"),
    "tag never closed": Case(PROSE + f"<triton>\n{CODE}", CODE, "triton_tag+unclosed"),
    "tag never closed, prose after": Case(f"<triton>\n{CODE}\n{PROSE}", CODE, "triton_tag+unclosed+prose"),
    "tag around a fence": Case(tag(fence(CODE)), CODE, "triton_tag"),
    "fence directly behind the tag": Case(f"<triton>```python\n{CODE}```</triton>", CODE, "triton_tag"),
    "tag around prose and a fence": Case(tag(PROSE + fence(CODE) + PROSE), CODE, "triton_tag"),
    "tag around prose and code": Case(tag(PROSE + CODE), CODE, "triton_tag+prose"),
    "unclosed tag around a fence": Case(f"<triton>\n{fence(CODE)}", CODE, "triton_tag"),
    "fence around a tag": Case(fence(tag(CODE), "```"), CODE, "triton_tag"),
    "stray closing tag before a fence": Case(f"{PROSE}</triton>\n{fence(CODE)}", CODE, "fence"),
    "tag talked about in prose": Case(f"I put it in `<triton>` tags.\n{fence(CODE)}", CODE, "fence"),
    "two tags": Case(tag(OLD) + "Better:\n" + tag(CODE), CODE, "triton_tag"),
    "second tag opened before the first is closed": Case(f"<triton>\n{OLD}{tag(CODE)}", CODE, "triton_tag"),
    "fence": Case(PROSE + fence(CODE) + PROSE, CODE, "fence"),
    "fence labelled py": Case(fence(CODE, "```py"), CODE, "fence"),
    "fence labelled python3": Case(fence(CODE, "```python3"), CODE, "fence"),
    "fence labelled Python": Case(fence(CODE, "```Python"), CODE, "fence"),
    "fence labelled triton": Case(fence(CODE, "```triton"), CODE, "fence"),
    "fence without label": Case(fence(CODE, "```"), CODE, "fence"),
    "fence labelled text": Case(fence(CODE, "```text"), CODE, "fence"),
    "fence with attributes": Case(fence(CODE, "```{.python .numberLines}"), CODE, "fence"),
    "fence with a title": Case(fence(CODE, '```python title="kernel.py"'), CODE, "fence"),
    "fence with a space before the label": Case(fence(CODE, "``` python"), CODE, "fence"),
    "code on the fence's own line": Case(f"```{CODE}```\n", CODE, "fence"),
    "tilde fence": Case(fence(CODE, "~~~python"), CODE, "fence"),
    "tilde fence without label": Case(fence(CODE, "~~~"), CODE, "fence"),
    "long backtick fence": Case(fence(CODE, "`````python"), CODE, "fence"),
    "long tilde fence": Case(fence(CODE, "~~~~~~"), CODE, "fence"),
    "longer closing fence": Case(f"```python\n{CODE}`````\n", CODE, "fence"),
    "closing fence shorter than the opening one": Case(f"````python\n{CODE}```\n", CODE, "fence+unclosed+prose"),
    "fence never closed": Case(f"```python\n{CODE}", CODE, "fence+unclosed"),
    "fence never closed, prose after": Case(f"```python\n{CODE}\n{PROSE}", CODE, "fence+unclosed+prose"),
    "python fence in a markdown fence": Case(fence(PROSE + fence(CODE), "````markdown"), CODE, "fence"),
    "fence in a list item": Case("1. Code:\n   " + fence(CODE).replace("\n", "\n   "), CODE, "fence+mended"),
    "fence behind a list marker": Case("- " + fence(CODE).replace("\n", "\n  "), CODE, "fence+mended"),
    "fence right after prose": Case("Here it is:\n" + fence(CODE), CODE, "fence"),
    "bare": Case(CODE, CODE, "bare"),
    "bare after prose": Case(PROSE + "\n" + CODE, CODE, "bare"),
    "bare between prose": Case(f"Sure!\n\n{CODE}\n{PROSE}", CODE, "bare"),
    "bare with a heading": Case(f"# Solution\n\n{CODE}", CODE, "bare"),
    "bare with a stray closing tag": Case(f"{CODE}</triton>\n", CODE, "bare"),
    "bare beside a fenced command": Case(f"{CODE}\nRun it:\n{fence('python k.py', '```bash')}", CODE, "bare"),
    # Thinking.
    "think before": Case(f"<think>\n{PROSE}</think>\n{fence(CODE)}", CODE, "fence"),
    "think with a draft": Case(f"<think>\n{fence(OLD)}Hmm, no.\n</think>\n{fence(CODE)}", CODE, "fence"),
    "think after the draft's fence": Case(f"<think>\n{fence(OLD).rstrip()}</think>{fence(CODE)}", CODE, "fence"),
    "think opened by the chat template": Case(f"{fence(OLD)}</think>\n\n{tag(CODE)}", CODE, "triton_tag"),
    "think twice": Case(f"<think>a</think>\n{fence(CODE)}<think>\n{fence(OLD)}</think>", CODE, "fence"),
    "think again, never closed": Case(f"{fence(CODE)}<think>\nOr rather\n{fence(OLD)}", CODE, "fence"),
    "empty think": Case(f"<think>\n\n</think>\n\n{tag(CODE)}", CODE, "triton_tag"),
    "thinking spelled out": Case(f"<thinking>{fence(OLD)}</thinking>{fence(CODE)}", CODE, "fence"),
    "think talked about": Case(f"I will not use `<think>` here.\n{fence(CODE)}", CODE, "fence"),
    # Several blocks.
    "kernel and wrapper apart": Case(
        f"Kernel:\n{fence(IMPORTS + KERNEL)}Wrapper:\n{fence(WRAPPER)}", CODE, "fence+joined"
    ),
    "wrapper before kernel": Case(
        f"{fence('import torch' + chr(10) + WRAPPER)}\n{fence(IMPORTS + KERNEL)}",
        "import triton\nimport torch\n" + WRAPPER + IMPORTS + KERNEL,
        "fence+joined",
    ),
    "imports, kernel and wrapper apart": Case(fence(IMPORTS) + fence(KERNEL) + fence(WRAPPER), CODE, "fence+joined"),
    "module over a wrapper block": Case(fence(CODE) + fence(MODULE), CODE + MODULE, "fence+joined"),
    "pieces in tags": Case(tag(IMPORTS + KERNEL) + tag(WRAPPER), CODE, "triton_tag+joined"),
    "pieces in bare text": Case(f"{IMPORTS}{KERNEL}\nNow the wrapper.\n{WRAPPER}", CODE, "bare+joined"),
    "complete block needs no other": Case(fence(IMPORTS + "N = 4\n") + fence(CODE), CODE, "fence"),
    "usage after": Case(fence(CODE) + "Usage:\n" + fence(DEMO), CODE, "fence"),
    "test with imports after": Case(fence(CODE) + fence(IMPORTS + DEMO), CODE, "fence"),
    "test function after": Case(fence(CODE) + fence(f"def test():\n    {DEMO.splitlines()[0]}\n"), CODE, "fence"),
    "old version before": Case(f"You had:\n{fence(OLD)}Fixed:\n{fence(CODE)}", CODE, "fence"),
    "old version quoted": Case("> " + fence(OLD).replace("\n", "\n> ") + "\n\n" + fence(CODE), CODE, "fence"),
    "old version broken": Case(fence(OLD.replace("):", ")")) + fence(CODE), CODE, "fence"),
    "new kernel for an old wrapper": Case(fence(OLD) + fence(WRAPPER), OLD + WRAPPER, "fence+joined"),
    "signature after": Case(fence(CODE) + f"Signature:\n{fence(STUB)}", CODE, "fence"),
    "module signature after": Case(
        fence(CODE) + fence("class ModelNew:\n    def forward(self, x):\n        pass\n"), CODE, "fence"
    ),
    "plain fallback after": Case(
        fence(CODE) + fence("def triton_kernel_wrapper(x):\n    return x * 0.5\n"), CODE, "fence"
    ),
    "shell after": Case(fence(CODE) + fence("pip install triton\n", "```bash"), CODE, "fence"),
    "expected output after": Case(fence(CODE) + fence("tensor([0.5, 1.0])\n", "```"), CODE, "fence"),
    "reference before": Case(fence("def reference_impl(x):\n    return x / 2\n") + fence(CODE), CODE, "fence"),
    "C++ before": Case(fence("__global__ void k(float* x);\n", "```cpp") + fence(CODE), CODE, "fence"),
    "tag wins nothing by itself": Case(tag(STUB) + fence(CODE), CODE, "fence"),
    "tag and the same fenced": Case(tag(CODE) + fence(CODE), CODE, "fence"),
    # Content that confuses.
    "backticks in a docstring": Case(fence(DOC), DOC, "fence"),
    "backticks in a docstring, prose after": Case(fence(DOC) + PROSE, DOC, "fence"),
    "bare backticks in a docstring": Case(
        fence(DOC.replace("```python", "```")), DOC.replace("```python", "```"), "fence"
    ),
    "tilde fence around backticks": Case(fence(DOC, "~~~python"), DOC, "fence"),
    "docstring with backticks in a tag": Case(tag(DOC), DOC, "triton_tag"),
    "tags in a docstring": Case(
        fence(DOC.replace("Halves", "Answers in <triton> tags and </triton>")),
        DOC.replace("Halves", "Answers in <triton> tags and </triton>"),
        "fence",
    ),
    "closing tag in a string": Case(tag(IN_STRING) + PROSE, IN_STRING, "triton_tag"),
    "both tags in a docstring": Case(PROSE + tag(IN_DOCSTRING), IN_DOCSTRING, "triton_tag"),
    "closing tag in a comment": Case(tag(IN_COMMENT) + fence(DEMO), IN_COMMENT, "triton_tag"),
    "opening tag in a comment": Case(tag(OPENED_IN_COMMENT), OPENED_IN_COMMENT, "triton_tag"),
    "code goes on behind a closing tag in a comment": Case(
        tag(OLD) + tag(BEHIND_COMMENT), BEHIND_COMMENT, "triton_tag"
    ),
    "closing tag in a comment only": Case(f"<triton>\n{IN_COMMENT}", IN_COMMENT, "triton_tag+unclosed"),
    "closing tag in a comment of a fence": Case(tag(PROSE + fence(IN_COMMENT)), IN_COMMENT, "triton_tag"),
    "tag behind a comment closes": Case(f"<triton>\n{CODE.rstrip()}  # done</triton>\n{PROSE}", CODE, "triton_tag"),
    "tags behind comments close": Case(
        tag(OLD.rstrip() + "  # old") + tag(CODE.rstrip() + "  # new"), CODE, "triton_tag"
    ),
    "line numbers and a blank": Case(fence(numbered(CODE, "{} {}")), CODE, "fence+mended"),
    "aligned line numbers and a blank": Case(tag(numbered(CODE, "{:>3} {}")), CODE, "triton_tag+mended"),
    "bare, with line numbers": Case(numbered(CODE, "{} {}"), CODE, "bare+mended"),
    "line numbers and a tab": Case(fence(numbered(CODE, "{}\t{}")), CODE, "fence+mended"),
    "demo under if main": Case(
        fence(CODE + '\nif __name__ == "__main__":\n    print(1)\n'),
        CODE + '\nif __name__ == "__main__":\n    print(1)\n',
        "fence",
    ),
    "both entry points": Case(fence(CODE + MODULE), CODE + MODULE, "fence"),
    "entry point by assignment": Case(
        fence(CODE.replace("triton_kernel_wrapper", "run") + "triton_kernel_wrapper = run\n"),
        CODE.replace("triton_kernel_wrapper", "run") + "triton_kernel_wrapper = run\n",
        "fence",
    ),
    "CRLF": Case(fence(CODE).replace("\n", "\r\n"), CODE, "fence"),
    "CR": Case(tag(CODE).replace("\n", "\r"), CODE, "triton_tag"),
    "BOM": Case("\ufeff" + CODE, CODE, "bare"),
    "indented block": Case(fence("    " + CODE.replace("\n", "\n    ").rstrip() + "\n"), CODE, "fence+mended"),
    "smart quotes": Case(
        fence(CODE + "NAME = “halve”\nMARK = ‘h’\n"), CODE + "NAME = 'halve'\nMARK = 'h'\n", "fence+mended"
    ),
    "smart quotes in strings are kept": Case(fence(CODE + "S = '“a” — ’'\n"), CODE + "S = '“a” — ’'\n", "fence"),
    "smart quotes beside strings that hold some": Case(
        fence(CODE + "S = '“a”'\nT = “b”\n"), CODE + "S = '“a”'\nT = 'b'\n", "fence+mended"
    ),
    "no-break spaces": Case(fence(CODE.replace("    out", "\u00a0\u00a0\u00a0 out")), CODE, "fence+mended"),
    "zero-width spaces": Case(fence(CODE.replace("return out", "return\u200b out")), CODE, "fence+mended"),
    "minus signs": Case(fence(CODE + "A = 3 − 1\n"), CODE + "A = 3 - 1\n", "fence+mended"),
    "non-ASCII comments and names": Case(fence(CODE + "größe = 1  # ≤ 2 μs\n"), CODE + "größe = 1\n", "fence"),
    "tabs": Case(fence(CODE.replace("    ", "\t")), CODE, "fence"),
    "invalid escapes": Case(fence(CODE + "P = '\\d'\n"), CODE + "P = '\\\\d'\n", "fence"),
}
