"""Answers in the manner of model families, with the slips of each: marks of thinking, ends of turns, stubs, loops.

Written for these tests. Holds no assertion.
"""

from __future__ import annotations

import html
import json

from extraction_cases import CODE, DEMO, DOC, IMPORTS, KERNEL, MODULE, OLD, PROSE, WRAPPER, Case, fence, tag

DRAFT = f"We need to halve x. A draft:\n{fence(OLD)}That is nearly it.\n"
HOLLOW = "\n@triton.jit\ndef halve_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):\n    {}\n"
ELIDED = IMPORTS + HOLLOW.format("# unchanged, see above\n    ...") + WRAPPER
SAYS_SO = IMPORTS + HOLLOW.format('"""Unchanged, see above."""') + WRAPPER
NUMBERED = "".join(f"{number:3d} | {line}\n" for number, line in enumerate(CODE.splitlines(), 1))
SESSION = "".join(f">>> {line}".rstrip() + "\n" for line in CODE.splitlines())
ADDED = "".join(f"+{line}\n" for line in CODE.splitlines())
ANALYSIS = f"<|channel|>analysis<|message|>{DRAFT}<|end|><|start|>assistant"
TOLD = "Explanation\n\nThe kernel loads a block, halves it and stores it.\n"
TURN = "<|im_start|>user\nThanks! And without Triton?<|im_end|>\n<|im_start|>assistant\n"
PLAIN = "import torch\n\ndef triton_kernel_wrapper(x):\n    return x / 2\n"
COMPARING = CODE.replace("    tl.store(", "    m = at < n\n    k = m & m\n    tl.store(")
COMPARING = COMPARING.replace("mask=at < n", "mask=m")
ARROW = COMPARING.replace("(x):", "(x) -> torch.Tensor:")
ESCAPE_IN_STRING = CODE + 'LESS = "a &lt; b"\n'
LT_DEFINED = CODE + "lt, at = 1, 3\nBOTH = at &lt; at\n"

FAMILIES = {
    # A mark before the one that it should have followed.
    "fence opened again": Case(
        f"```python\n{IMPORTS}{KERNEL}\nNow the wrapper:\n```python\n{WRAPPER}```\n", CODE, "fence+joined"
    ),
    "fence opened again without prose": Case(
        f"```python\n{IMPORTS}{KERNEL}\n```python\n{WRAPPER}```\n", CODE, "fence+joined"
    ),
    "fences opened again, none closed": Case(
        f"```python\n{IMPORTS}```python\n{KERNEL}```python\n{WRAPPER}", CODE, "fence+unclosed+joined"
    ),
    "fence closed like it was opened": Case(f"```python\n{CODE}```python\n\n{PROSE}", CODE, "fence"),
    "fence left open, then a tag": Case(
        f"```python\n{IMPORTS}{KERNEL}\nThe wrapper:\n<triton>\n{WRAPPER}</triton>", CODE, "triton_tag+joined"
    ),
    "tag left open, then a tag": Case(
        f"<triton>\n{IMPORTS}{KERNEL}\n<triton>\n{WRAPPER}</triton>", CODE, "triton_tag+joined"
    ),
    "kernel bare in a tag, wrapper in a fence of it": Case(
        tag(f"{IMPORTS}{KERNEL}\nThe wrapper:\n{fence(WRAPPER)}"), CODE, "triton_tag+joined"
    ),
    "old fence left open, then the new one": Case(f"```python\n{OLD}\nFixed:\n{fence(CODE)}", CODE, "fence"),
    "usage opened before the code is closed": Case(f"```python\n{CODE}\nUsage:\n{fence(DEMO)}", CODE, "fence+prose"),
    # Qwen, DeepSeek, GLM, Hunyuan, Seed, Kimi, Magistral, EXAONE, Command: thinking.
    "closing mark at the end once more": Case(f"<think>{DRAFT}</think>\n{fence(CODE)}\n</think>", CODE, "fence"),
    "closing mark at the end only": Case(f"{fence(CODE)}\n</think>\n", CODE, "fence"),
    "closing mark and end mark at the end": Case(f"{tag(CODE)}</think><|im_end|>", CODE, "triton_tag"),
    "closing mark again, then a remark": Case(
        f"<think>{DRAFT}</think>\n{fence(CODE)}\n</think>\nThis halves x.", CODE, "fence"
    ),
    "thinking in Kimi's marks": Case(f"◁think▷{DRAFT}◁/think▷\n{fence(CODE)}", CODE, "fence"),
    "thinking in Kimi's marks, the draft is longer": Case(
        f"◁think▷{DRAFT}{fence(OLD + MODULE)}◁/think▷{tag(CODE)}", CODE, "triton_tag"
    ),
    "thinking in brackets": Case(f"[THINK]{DRAFT}[/THINK]{tag(CODE)}</s>", CODE, "triton_tag"),
    "thinking in Seed's marks": Case(f"<seed:think>{DRAFT}</seed:think>{CODE}", CODE, "bare"),
    "thinking with blanks in its marks": Case(f"< think >\n{DRAFT}</ think >\n{CODE}", CODE, "bare"),
    "thinking in special marks": Case(f"<|thinking|>\n{DRAFT}<|/thinking|>\n{CODE}", CODE, "bare"),
    "thought and solution in special marks": Case(
        f"<|begin_of_thought|>{DRAFT}<|end_of_thought|><|begin_of_solution|>{fence(CODE)}<|end_of_solution|>",
        CODE, "fence",
    ),
    "thinking in Command's marks": Case(
        f"<|START_THINKING|>{DRAFT}<|END_THINKING|><|START_RESPONSE|>{CODE.rstrip()}<|END_RESPONSE|>", CODE, "bare"
    ),
    "thinking in Gemma's channel": Case(f"<|channel>thought\n{DRAFT}<channel|>{CODE}<turn|>", CODE, "bare"),
    "thinking under Granite's headings": Case(
        f"Here is my thought process:\n{DRAFT}\nHere is my response:\n{CODE}", CODE, "bare"
    ),
    "thinking ended by the answer's tag": Case(f"<think>\n{DRAFT}<answer>\n{CODE}</answer>", CODE, "bare"),
    "a draft in answer tags while thinking": Case(
        f"<think>\n<answer>\n{OLD}</answer>\nNo.</think>\n<answer>\n{CODE}</answer>", CODE, "bare"
    ),
    "code in GLM's box": Case(f"<think>{DRAFT}</think>\n<|begin_of_box|>{CODE.rstrip()}<|end_of_box|>", CODE, "bare"),
    "fence in GLM's box": Case(
        f"<think>{DRAFT}</think>\n<|begin_of_box|>```python\n{CODE}```<|end_of_box|>", CODE, "fence"
    ),
    # GPT-OSS: channels.
    "final channel with a line end": Case(f"{ANALYSIS}<|channel|>final<|message|>\n{fence(CODE)}", CODE, "fence"),
    "final channel with bare code": Case(f"{ANALYSIS}<|channel|>final<|message|>{CODE}<|return|>", CODE, "bare"),
    "final channel with a constraint": Case(
        f"{ANALYSIS}<|channel|>final <|constrain|>python<|message|>{CODE}<|return|>", CODE, "bare"
    ),
    "commentary between": Case(
        f"{ANALYSIS}<|channel|>commentary<|message|>{fence(OLD)}<|end|><|start|>assistant"
        f"<|channel|>final<|message|>\n{tag(CODE)}",
        CODE, "triton_tag",
    ),
    "channels without special tokens": Case(f"analysis{DRAFT}assistantfinal{fence(CODE)}", CODE, "fence"),
    "channels without special tokens, tagged": Case(f"analysis{DRAFT}assistantfinal{tag(CODE)}", CODE, "triton_tag"),
    "an analysis that is a heading": Case(f"Analysis\n\n{PROSE}{fence(CODE)}", CODE, "fence"),
    # Llama, Mistral, Gemma: ends of turns glued to the code, and turns behind them.
    "end of turn behind bare code": Case(f"{CODE.rstrip()}</s>", CODE, "bare"),
    "end of turn behind an open tag": Case(f"<triton>\n{CODE.rstrip()}<end_of_turn>", CODE, "triton_tag+unclosed"),
    "end of sequence behind an open fence": Case(f"```python\n{CODE.rstrip()}<eos>", CODE, "fence+unclosed"),
    "Gemma's end behind bare code": Case(f"{CODE.rstrip()}<turn|>\n", CODE, "bare"),
    "instruction's end behind bare code": Case(f"{CODE.rstrip()} [/INST]", CODE, "bare"),
    "end in brackets behind bare code": Case(f"{CODE.rstrip()}[EOS]", CODE, "bare"),
    "two ends behind an open tag": Case(f"<triton>\n{CODE.rstrip()}</s></s>", CODE, "triton_tag+unclosed"),
    "answer tags glued to the code": Case(f"<answer>{CODE.rstrip()}</answer>", CODE, "bare"),
    "code tags of HTML glued to the code": Case(f"<pre><code>{CODE.rstrip()}</code></pre>", CODE, "bare"),
    "a parameter of a tool": Case(
        f"<tool_call>\n<function=write>\n<parameter=content>\n{CODE.rstrip()}</parameter>\n</function>\n</tool_call>",
        CODE, "bare",
    ),
    "a further turn with another answer": Case(f"{fence(CODE)}<|im_end|>\n{TURN}{fence(PLAIN)}", CODE, "fence"),
    "a further turn with another kernel": Case(
        f"{tag(CODE)}<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nSlower, please.{tag(OLD)}",
        CODE, "triton_tag",
    ),
    "a further turn behind bare code": Case(f"{CODE}<|im_end|>\n{TURN}{OLD}", CODE, "bare"),
    "an end mark in a string": Case(fence(CODE + 'END = "</s>"\n'), CODE + 'END = "</s>"\n', "fence"),
    # Small models: words that parse, copies, notation.
    "label on a line of its own in a tag": Case(f"<triton>\npython\n{CODE}</triton>", CODE, "triton_tag+prose"),
    "label on a line of its own in a fence": Case(f"```\nTriton\n{CODE}```", CODE, "fence+prose"),
    "the name of an import as a label": Case(f"```\ntriton\n{CODE}```", CODE, "fence+prose"),
    "file name on a line of its own": Case(f"<triton>\nkernel.py\n{CODE}</triton>", CODE, "triton_tag+prose"),
    "one word before bare code": Case(f"Sure\n\n{CODE}", CODE, "bare"),
    "heading of one word behind bare code": Case(f"{CODE}\n{TOLD}", CODE, "bare"),
    "heading of one word behind an open fence": Case(f"```python\n{CODE}\n{TOLD}", CODE, "fence+unclosed+prose"),
    "heading of one word behind an open tag": Case(f"<triton>\n{CODE}\n{TOLD}", CODE, "triton_tag+unclosed+prose"),
    "one word at the end": Case(f"{CODE}\nDone\n", CODE, "bare"),
    "a list of words at the end": Case(f"```python\n{CODE}\n- Fast\n- Memory-bound\n", CODE, "fence+unclosed+prose"),
    "a word and its meaning at the end": Case(f"<triton>\n{CODE}\nOutput: tensor\n", CODE, "triton_tag+unclosed+prose"),
    "words with commas at the end": Case(f"{CODE}\nNotes\nSimple, fast\n2.\n", CODE, "bare"),
    "a heading of one word within the fence": Case(
        fence(f"{IMPORTS}{KERNEL}\nWrapper\n{WRAPPER}"), CODE, "fence+prose"
    ),
    "names that resolve are code": Case(
        fence(CODE + "halve_kernel\nBLOCK: int\n"), CODE + "halve_kernel\nBLOCK: int\n", "fence"
    ),
    "comparisons escaped for HTML": Case(fence(html.escape(CODE, quote=False)), CODE, "fence+mended"),
    "the same where they parse": Case(fence(html.escape(COMPARING, quote=False)), COMPARING, "fence+mended"),
    "the same in a tag": Case(tag(html.escape(COMPARING, quote=False)), COMPARING, "triton_tag+mended"),
    "the same between prose": Case(
        html.escape(f"{PROSE}\n{COMPARING}\n{PROSE}", quote=False), COMPARING, "bare+mended"
    ),
    "an arrow and comparisons escaped, prose in the fence": Case(
        fence(html.escape(f"{ARROW}\n{PROSE}", quote=False)), ARROW, "fence+prose+mended"
    ),
    "an escape in a string is none": Case(fence(ESCAPE_IN_STRING), ESCAPE_IN_STRING, "fence"),
    "names of an escape that are defined are none": Case(fence(LT_DEFINED), LT_DEFINED, "fence"),
    "lines with their numbers": Case(fence(NUMBERED), CODE, "fence+mended"),
    "an interpreter's session": Case(fence(SESSION), CODE, "fence+mended"),
    "an object with the code in it": Case(json.dumps({"plan": PROSE, "code": CODE}), CODE, "bare+mended"),
    "an object in a fence": Case(fence(json.dumps({"code": CODE}) + "\n", "```json"), CODE, "bare+mended"),
    "the whole file as an addition": Case(
        fence(f"--- a/k.py\n+++ b/k.py\n@@ -0,0 +1 @@\n{ADDED}", "```diff"),
        CODE, "fence+mended",
    ),
    # Stubs that stand for what was given before.
    "stub of the kernel between kernel and wrapper": Case(
        fence(IMPORTS + KERNEL) + "Its signature:\n" + fence(HOLLOW.format("...")) + fence(WRAPPER),
        CODE, "fence+joined",
    ),
    "kernel elided in the final file": Case(
        fence(CODE) + f"Final:\n{fence(ELIDED)}", CODE + IMPORTS + WRAPPER, "fence+joined"
    ),
    "kernel elided by a docstring": Case(
        fence(CODE) + f"Final:\n{fence(SAYS_SO)}", CODE + IMPORTS + WRAPPER, "fence+joined"
    ),
    "kernel elided by pass": Case(
        fence(IMPORTS + KERNEL) + fence(IMPORTS + HOLLOW.format("pass") + WRAPPER),
        IMPORTS + KERNEL + IMPORTS + WRAPPER, "fence+joined",
    ),
    "kernel elided by a comment alone": Case(
        fence(CODE) + f"Final:\n{fence(IMPORTS + HOLLOW.format('# unchanged, see above') + WRAPPER)}",
        CODE, "fence",
    ),
    "stub of the kernel below it": Case(fence(CODE + HOLLOW.format("...")), CODE, "fence"),
    "wrapper elided in the module's block": Case(
        fence(CODE) + fence("import torch\n\ndef triton_kernel_wrapper(x):\n    ...\n" + MODULE),
        CODE + "import torch\n" + MODULE, "fence+joined",
    ),
    "class elided in a later block": Case(
        fence(CODE + MODULE) + fence("class ModelNew(torch.nn.Module):\n    pass\n"), CODE + MODULE, "fence"
    ),
    # Where the code is not in one place.
    "kernel bare, wrapper in a fence": Case(f"{IMPORTS}{KERNEL}\nThe wrapper:\n{fence(WRAPPER)}", CODE, "fence+joined"),
    "docstring with a fence, left open": Case(f"```python\n{DOC}", DOC, "fence+unclosed"),
    "docstring with a fence, opened again": Case(f"```python\n{DOC}\nUsage:\n{fence(DEMO)}", DOC, "fence+prose"),
    "bullets of one word behind bare code": Case(f"{CODE}\n* fast\n* masked\n", CODE, "bare"),
    "code in a box of LaTeX": Case(f"\\boxed{{\n{CODE}}}", CODE, "bare"),
    "fence of single quotes": Case(f"'''python\n{CODE}'''", CODE, "fence+mended"),
    "thinking in Solar's marks": Case(
        f"<|think|>{DRAFT}<|end|><|begin|>assistant<|content|>{fence(CODE)}<|flush|>", CODE, "fence"
    ),
    "arguments of a tool as text in an object": Case(
        "<tool_call>\n" + json.dumps({"name": "write", "arguments": json.dumps({"code": CODE})}) + "\n</tool_call>",
        CODE, "bare+mended",
    ),
    "steps with a fence each": Case(
        "1. Imports\n   " + fence(IMPORTS).replace("\n", "\n   ") + f"\n2. Kernel\n{fence(KERNEL)}{fence(WRAPPER)}",
        CODE, "fence+joined",
    ),
    "closing tag misspelled": Case(f"<triton>\n{CODE}</trition>\nDone.", CODE, "triton_tag+unclosed+prose"),
    "headers of a chat template in front": Case(
        f"<|im_start|>assistant\n<think>\n{DRAFT}</think>\n{CODE}<|im_end|>", CODE, "bare"
    ),
    "sentences that begin like statements": Case(
        f"import the file as usual:\n\n{CODE}\nfor larger inputs use more.\nreturn value is a tensor.\n", CODE, "bare"
    ),
    "a template to fill in behind": Case(
        fence(CODE + MODULE) + fence("class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        pass\n"),
        CODE + MODULE, "fence",
    ),
    "cells of a notebook": Case(f"```python\n#@title Kernel\n%%time\n{CODE}```", CODE, "fence+prose"),
    "prose with apostrophes behind bare code": Case(f"{CODE}\nIt's fast.\nDon't change x's shape.\n" * 2, CODE, "bare"),
}  # fmt: skip
