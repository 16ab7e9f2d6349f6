"""Pairs of a PyTorch program and a Triton kernel as conversations: KernelBook's rows, or a file's.

The program is asked about as a run would ask, and the kernel answers in the form that prompts ask for, under an entry
point that counts. A row whose kernel a verifier would refuse before running it is left out and counted. Whether a
kernel is right is nobody's to say here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kb_ray.bench.static import check_static
from kb_ray.errors import ConfigError, TaskError
from kb_ray.extract import extract
from kb_ray.prompts.opening import PromptSetting, opening_messages, shows_examples
from kb_ray.records import Candidate, Completion, Status, Task
from kb_ray.tasks.kernelbook import CODE_COLUMNS, DATASET, kernelbook_rows
from kb_ray.tasks.program import InitConvention
from kb_ray.tasks.rows import Row, code_column, row_task
from kb_ray.tasks.table import file_rows
from kb_ray.training.dialogues import Dialogue
from kb_ray.training.inductor import computed_by_pytorch, in_plain_pytorch

KERNELS = ("triton_code", "kernel_code", "final_triton_code")
"""Columns that may hold the kernel; the first one that is there counts."""
_ENTRIES = ("ModelNew", "triton_kernel_wrapper")
_NAMES = ("entry_point", "module_name")
_INSTEAD = "where the hub is out of reach, give the data set's .parquet with --data file:PATH"
_STATIC = {Status.NO_KERNEL: "no kernel", Status.SYNTAX_ERROR: "no valid Python", Status.FORBIDDEN: "not allowed"}


@dataclass(frozen=True)
class _Table:
    """Rows to be read, and what their columns mean."""

    rows: Iterable[tuple[str, Callable[[], Row]]]
    program: str
    kernel: str
    source: str
    convention: InitConvention | None


def names_pairs(spec: str) -> bool:
    """Whether `spec` stands for rows of pairs, not for a trace store."""
    return spec == "kernelbook" or spec.startswith("file:")


class Pairs:
    """The conversations of `kernelbook` or `file:PATH`, one for each row that can be used, in order.

    ConfigError where the rows cannot be had, lack a column, or the template wants examples.
    """

    def __init__(self, spec: str, template: str = "default") -> None:
        if shows_examples(template):
            raise ConfigError(f"--prompt-option {template}: it shows examples, and pairs are learned without")
        self._table = _kernelbook() if spec == "kernelbook" else _file(spec)
        self._prompt = PromptSetting(template=template, device="cuda")
        self.left_out = Counter[str]()
        """Rows without a use so far, by reason."""

    def __iter__(self) -> Iterator[Dialogue]:
        for task_id, read in self._table.rows:
            try:
                row = read()
                task, code = self._task(task_id, row), _kernel(row, self._table.kernel)
                yield self._dialogue(task, code)
            except TaskError as error:
                self.left_out[str(error)] += 1

    def _task(self, task_id: str, row: Row) -> Task:
        table, code = self._table, row.get(self._table.program)
        named = next((name for name in map(row.get, _NAMES) if _defines(code, name)), None)
        try:
            return row_task(
                {**row, "entry_point": named}, code_column=table.program, source=table.source,
                default_name=task_id.rpartition("/")[2], task_id=task_id, init_convention=table.convention,
            )  # fmt: skip
        except TaskError:
            raise TaskError("no usable program") from None

    def _dialogue(self, task: Task, kernel: str) -> Dialogue:
        code = with_entry_point(in_plain_pytorch(kernel), task.entry_point)
        if finding := check_static(code):
            raise TaskError(_STATIC.get(finding.status, str(finding.status)))
        if computed_by_pytorch(code):
            raise TaskError("computed by PyTorch")
        answer = f"<triton>\n{code.strip()}\n</triton>"
        found = extract(Completion(text=answer, finish_reason="stop", model="pairs"))
        if not isinstance(found, Candidate) or (found.rule, found.code.strip()) != ("triton_tag", code.strip()):
            raise TaskError("not found again in its answer")
        asked = [{"role": str(m.role), "content": m.content} for m in opening_messages(task, self._prompt)]
        messages = [*asked, {"role": "assistant", "content": answer}]
        return Dialogue(messages, task.task_id, task.reference_code, task.entry_point)


def with_entry_point(code: str, program: str | None) -> str:
    """Code that has an entry point of ours: its class `ReluNew`, for a program `Relu`, is called `ModelNew` then.

    Where no class is called after the program, the last whose name ends in `New` is taken; code without one stays.
    """
    names = _classes(code)
    if any(name in _ENTRIES for name in [*names, *_functions(code)]):
        return code
    wanted = f"{program}New"
    modules = [name for name in names if name.endswith("New")]
    if not modules:
        return code
    return re.sub(rf"\b{wanted if wanted in modules else modules[-1]}\b", "ModelNew", code)


def _kernelbook() -> _Table:
    columns, rows = kernelbook_rows((*CODE_COLUMNS, KERNELS[0], *_NAMES, "uuid"), _INSTEAD)
    program = code_column(columns, DATASET, CODE_COLUMNS)
    return _Table(rows, program, code_column(columns, DATASET, KERNELS[:1]), "kernelbook", "args_kwargs")


def _file(spec: str) -> _Table:
    path = spec.partition(":")[2]
    columns, rows = file_rows(path, KERNELS)
    named = [(f"file/{Path(path).stem}_{index}", read) for index, (_, read) in enumerate(rows)]
    return _Table(named, code_column(columns, spec), code_column(columns, spec, KERNELS), "file", None)


def _kernel(row: Row, column: str) -> str:
    code = row.get(column)
    if not isinstance(code, str) or not code.strip():
        raise TaskError("no kernel")
    return code.replace("\r\n", "\n")


def _defines(code: object, name: object) -> bool:
    return isinstance(code, str) and isinstance(name, str) and name in _classes(code) + _functions(code)


def _classes(code: str) -> list[str]:
    return re.findall(r"^class (\w+)", code, re.MULTILINE)


def _functions(code: str) -> list[str]:
    return re.findall(r"^def (\w+)", code, re.MULTILINE)
