"""Answers that hold several versions of the same names, or marks where code and prose meet badly.

Written for these tests. Holds no assertion.
"""

from __future__ import annotations

from extraction_cases import CODE, DEMO, IMPORTS, KERNEL, MODULE, OLD, PROSE, WRAPPER, Case, fence, tag

OLD_KERNEL = KERNEL.replace("0.5", "0.25")
PLAIN = "import torch\n{how}\ndef f(x):\n    return x * 0.5\ndef triton_kernel_wrapper(x):\n    return f(x)\n"
HELPER = "\n@triton.jit\ndef half(x):\n    return x * 0.5\n"
WITH_HELPER = KERNEL.replace("tl.load(x_ptr + at, mask=at < n) * 0.5", "half(tl.load(x_ptr + at, mask=at < n))")
OLD_HELPER = IMPORTS + HELPER.replace("0.5", "0.25") + WITH_HELPER + WRAPPER
COMMENT = CODE.replace("    return out", "    # what </think> closes\n    return out")
THINK_DOC = CODE.replace("    out =", '    """\n    <think>halves</think>\n<think>\n    """\n    out =')
GRID = "\ndef grid(n):\n    return (triton.cdiv(n, {size}),)\n"
GRID_WRAPPER = WRAPPER.replace("(triton.cdiv(x.numel(), 256),)", "grid(x.numel())")

VERSIONS = {
    # Of several definitions of one name the last one before the entry point counts, else the last one behind it.
    "old file, new kernel, new wrapper": Case(fence(OLD) + fence(KERNEL) + fence(WRAPPER), CODE, "fence+joined"),
    "old file, new kernel with imports, new wrapper": Case(
        fence(OLD) + fence(IMPORTS + KERNEL) + fence(WRAPPER), CODE, "fence+joined"
    ),
    "old file, then imports, kernel and wrapper": Case(
        fence(OLD) + fence(IMPORTS) + fence(KERNEL) + fence(WRAPPER), CODE, "fence+joined"
    ),
    "the same in tags": Case(tag(OLD) + tag(KERNEL) + tag(WRAPPER), CODE, "triton_tag+joined"),
    "old kernel, new kernel, wrapper": Case(
        fence(IMPORTS + OLD_KERNEL) + fence(KERNEL) + fence(WRAPPER), CODE, "fence+joined"
    ),
    "old file, new wrapper, new kernel": Case(
        fence(OLD) + fence(WRAPPER) + fence(IMPORTS + KERNEL),
        "import torch\nimport triton\n" + WRAPPER + IMPORTS + KERNEL,
        "fence+joined",
    ),
    "old file, new helper of its kernel, new wrapper": Case(
        fence(OLD_HELPER) + fence(HELPER) + fence(WRAPPER), OLD_HELPER + HELPER + WRAPPER, "fence+joined"
    ),
    "the kernel's block brings an old helper along": Case(
        fence(GRID.format(size=256) + GRID_WRAPPER) + fence(IMPORTS + KERNEL + GRID.format(size=1)),
        IMPORTS + KERNEL + GRID.format(size=1) + GRID.format(size=256) + GRID_WRAPPER,
        "fence+joined",
    ),
    "wrapper, the kernel as it was, the kernel as it becomes": Case(
        fence("import torch\n" + WRAPPER) + f"It was\n{fence(OLD_KERNEL)}and becomes\n{fence(IMPORTS + KERNEL)}",
        "import triton\nimport torch\n" + WRAPPER + IMPORTS + KERNEL,
        "fence+joined",
    ),
    "wrapper, then the kernel in three versions": Case(
        fence(IMPORTS + WRAPPER) + fence(KERNEL.replace("0.5", "0.1")) + fence(OLD_KERNEL) + fence(KERNEL),
        IMPORTS + WRAPPER + KERNEL,
        "fence+joined",
    ),
    "imports in the wrapper's block only": Case(
        fence(KERNEL) + fence(IMPORTS + WRAPPER),
        "import triton\nimport triton.language as tl\n" + KERNEL + IMPORTS + WRAPPER,
        "fence+joined",
    ),
    "imports in a usage block only": Case(fence(KERNEL) + fence(WRAPPER) + fence(IMPORTS + DEMO), CODE, "fence+joined"),
    # A `jit` that is not Triton's makes no kernel.
    "TorchScript fallback after": Case(fence(CODE) + fence(PLAIN.format(how="@torch.jit.script")), CODE, "fence"),
    "TorchScript by its short name after": Case(
        fence(CODE) + fence(PLAIN.format(how="from torch import jit\n@jit.script")), CODE, "fence"
    ),
    "Numba fallback after": Case(fence(CODE) + fence(PLAIN.format(how="from numba import jit\n@jit")), CODE, "fence"),
    "Numba by attribute after": Case(
        fence(CODE) + fence(PLAIN.format(how="from numba import cuda\n@cuda.jit")), CODE, "fence"
    ),
    "Triton by other names, a fallback after": Case(
        fence("import triton as tr\n" + CODE.replace("@triton", "@tr")) + fence(PLAIN.format(how="")),
        "import triton as tr\n" + CODE.replace("@triton", "@tr"),
        "fence",
    ),
    "Triton's jit imported, a fallback after": Case(
        fence("from triton import jit as kernel\n" + CODE.replace("@triton.jit", "@kernel"))
        + fence(PLAIN.format(how="")),
        "from triton import jit as kernel\n" + CODE.replace("@triton.jit", "@kernel"),
        "fence",
    ),
    # Tags of thinking in code are code.
    "closing think tag in a comment": Case(tag(COMMENT), CODE, "triton_tag"),
    "the same in a fence after thinking": Case(f"<think>\n{fence(OLD)}</think>\n{fence(COMMENT)}", CODE, "fence"),
    "the same in a fence inside thinking": Case(f"<think>\n{fence(COMMENT)}</think>\n{fence(CODE)}", CODE, "fence"),
    "the same in bare code": Case(COMMENT, CODE, "bare"),
    "think tags in a docstring": Case(tag(THINK_DOC), THINK_DOC, "triton_tag"),
    "think tags in a docstring of a fence in a list": Case(
        "- " + fence(THINK_DOC.replace("\n<think>", "\n    <think>")).replace("\n", "\n  "),
        THINK_DOC.replace("\n<think>", "\n    <think>"),
        "fence+mended",
    ),
    "think tag in a string": Case(fence(CODE + 'END = "</think>"\n'), CODE + 'END = "</think>"\n', "fence"),
    "thinking that starts behind a sentence": Case(
        f"Sure. <think>Hm\n{fence(OLD)}</think>{tag(CODE)}", CODE, "triton_tag"
    ),
    "second thoughts behind a sentence": Case(f"{fence(CODE)}Done. <think>\nOr\n{fence(OLD)}", CODE, "fence"),
    # A closing fence glued to the last line.
    "fence closed behind the last line": Case(f"```python\n{CODE.rstrip()}```\n{PROSE}", CODE, "fence"),
    "tilde fence closed behind the last line": Case(f"~~~python\n{CODE.rstrip()}~~~\n", CODE, "fence"),
    "two fences closed behind their last lines": Case(
        f"```python\n{OLD.rstrip()}```\nBetter:\n```python\n{CODE.rstrip()}```\n", CODE, "fence"
    ),
    "the first of two closed behind its last line": Case(
        f"```python\n{CODE.rstrip()}```\nUsage:\n{fence(DEMO)}", CODE, "fence"
    ),
    "fence and tag closed behind the last line": Case(
        f"<triton>```python\n{CODE.rstrip()}```</triton>", CODE, "triton_tag"
    ),
    "opened and closed within lines": Case(f"Here: ```python\n{CODE.rstrip()}```\nDone.", CODE, "bare"),
    "tag opened, fence closed behind the last line": Case(
        f"<triton>\n{CODE.rstrip()}```\n", CODE, "triton_tag+unclosed+prose"
    ),
    "backticks at the end of a comment": Case(
        fence(CODE.replace("    return out", "    # ```\n    x = 1  # not ```\n    return out")),
        CODE.replace("    return out", "    x = 1\n    return out"),
        "fence",
    ),
    # Marked code is named by its mark.
    "prose at the end of a closed fence": Case(fence(CODE + "\nThis should work.\n"), CODE, "fence+prose"),
    "the same after an old version": Case(fence(OLD) + fence(CODE + "\nThis should work.\n"), CODE, "fence+prose"),
    "a command at the top of a closed fence": Case(fence("!pip install triton\n" + CODE), CODE, "fence+prose"),
    "fence labelled cuda": Case(fence(CODE, "```cuda"), CODE, "fence"),
    "fence labelled C": Case(fence(CODE, "```C"), CODE, "fence"),
    "pieces labelled cuda": Case(fence(IMPORTS + KERNEL, "```cuda") + fence(WRAPPER, "```cuda"), CODE, "fence+joined"),
    "fence labelled cuda in a tag": Case(tag(fence(CODE, "```cuda")), CODE, "triton_tag"),
    "CUDA source after": Case(
        fence(CODE + MODULE) + fence("__global__ void k() {}\n", "```cuda"), CODE + MODULE, "fence"
    ),
}
