"""The configuration of a run: one frozen model from which flags, YAML keys and the fingerprint follow.

Says what may be asked for, in which range, and what identifies a run (traces/run.py hashes it). Does not
know where values come from (config_sources.py does), whether they can be met (preflight.py does), or how
anything is run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from kb_ray.bench.protocol import VERIFIER_VERSION, BenchSettings
from kb_ray.records import Sampling
from kb_ray.traces.shards import Shard

KERNELBOOK_DEFAULT = 1500
"""KernelBook samples of a run that names neither tasks nor counts."""
KERNELBENCH_DEFAULT = 1000
"""KernelBench samples of a run that names neither tasks nor counts."""
_USERINFO = re.compile(r"(?<=://)[^/@]*@")
MOST_WORKERS = 1024
AT_ONCE = {"cuda": 12, "cpu": 2}
"""Candidates that one bench worker takes at once where nobody says how many, by device: of runs and over HTTP."""


@dataclass(frozen=True)
class Shown:
    """How a flag's help describes its value, where the type does not say it."""

    unit: str
    """What is counted or named: `seconds`, `turns`, `URL`."""
    default: str | None = None
    """What an empty default means."""
    range: str | None = None
    """What is accepted, where it does not follow from the constraints."""


@dataclass(frozen=True)
class Fixed:
    """A setting that others have and that can only be this here."""

    values: tuple[bool | int | str, ...]
    why: str


class RunConfig(BaseModel):
    """Generate Triton kernels for PyTorch tasks, verify and time them, and keep every attempt as Parquet."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    tasks: Annotated[tuple[str, ...], Shown("task sources", "none: see the sample counts", "SPEC")] = ()
    """Task source, repeatable: builtin[:LEVELS], folder:PATH of .py files, file:PATH of .parquet or .jsonl,
    kernelbench[:LEVELS], kernelbook[:PATH]. LEVELS is a list such as 1,2."""
    kernelbook_samples: Annotated[
        int | None, Field(ge=0, le=1_000_000), Shown("samples", "1500 if no --tasks and no counts")
    ] = None
    """Samples drawn from KernelBook, in a stable order by --seed."""
    kernelbench_samples: Annotated[
        int | None, Field(ge=0, le=1_000_000), Shown("samples", "1000 if no --tasks and no counts")
    ] = None
    """Samples drawn from KernelBench, likewise."""
    kernelbench_root: Annotated[
        str | None,
        Shown("folder", "a checkout called KernelBench nearby, else the hub", "folder, or exported .parquet or .jsonl"),
    ] = None
    """A local checkout of KernelBench to read its problems from; one nearby is found by itself."""
    column: Annotated[tuple[str, ...], Shown("FIELD=COLUMN", "the usual names", "FIELD=COLUMN")] = ()
    """Column of file: sources that holds a field, such as code=torch_source; repeatable. Fields: code, name,
    task_id, level, problem_id, uuid, license, entry_point, input_shapes."""
    samples: Annotated[int, Field(ge=1, le=10_000), Shown("episodes per task")] = 1
    """Independent episodes for each task of --tasks."""

    model: Annotated[str | None, Shown("name", "the one model served", "NAME or scripted[:FILE]")] = None
    """Model to ask, as the server names it. scripted answers from a file of completions instead, or from
    the built-in script."""
    vllm_url: Annotated[str, Shown("URL", None, "http:// or https://")] = "http://localhost:8000/v1"
    """OpenAI-compatible endpoint of the model server."""
    api_key: Annotated[SecretStr | None, Shown("secret", "none is sent", "any text")] = None
    """Key of the model server. Better set as VLLM_API_KEY than typed."""
    temperature: Annotated[float, Field(ge=0, le=2), Shown("softmax temperature")] = 1.0
    """Sampling temperature; 0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1), Shown("probability")] = 1.0
    """Nucleus sampling: the smallest set of tokens with this probability."""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000), Shown("tokens")] = 8192
    """Length of one answer at most, reasoning included."""
    context: Annotated[
        int | None, Field(ge=2, le=100_000_000), Shown("tokens", "what the server says, else no limit")
    ] = None
    """Window of the model, prompt and answer together. Older turns are shortened to fit it."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), Shown("number")] = 0
    """Decides which samples are drawn and the seed of every request."""
    batch_size: Annotated[int, Field(ge=1, le=10_000), Shown("requests")] = 10
    """Generations in flight at once."""
    answer_timeout: Annotated[float, Field(ge=1, le=86_400), Shown("seconds")] = 600.0
    """Time for one answer, its wait at the server included; one that takes longer is asked for again."""
    prompt: Annotated[str, Shown("name or path", None, "NAME or PATH")] = "default"
    """Template of the opening prompt: one of kb_ray/prompts/templates, or a Markdown file of your own."""
    rag_index: Annotated[str | None, Shown("folder or URL", "none", "local folder or s3://BUCKET/PREFIX")] = None
    """Index that python -m kb_ray.index made, for prompts that show examples, such as --prompt raicl."""
    rag_model: Annotated[
        str | None, Shown("name or folder", "the one that the index names", "name on the hub, or folder")
    ] = None
    """Where the index's embedding model lies, if not where it lay when the index was built."""
    raicl_k: Annotated[int, Field(ge=1, le=16), Shown("examples per prompt")] = 3
    """Examples that each opening prompt shows."""
    raicl_tokens: Annotated[int, Field(ge=100, le=1_000_000), Shown("tokens")] = 12_000
    """Length of all of them at most, estimated on the high side; never more than half of what the window leaves."""
    raicl_overlap: Annotated[float, Field(gt=0, le=1), Shown("share of token runs")] = 0.9
    """An example whose program has this much in common with the task counts as the task itself and is not shown."""
    raicl_cuda: Annotated[bool, Shown("switch")] = False
    """Show CUDA examples too."""

    multi_turn: Annotated[bool, Shown("switch")] = False
    """Send failed or slow kernels back to the model with feedback."""
    max_turns: Annotated[int, Field(ge=1, le=64), Shown("turns")] = 4
    """Turns of an episode at most; counts only with --multi-turn."""
    target_speedup: Annotated[float, Field(gt=0, le=1000), Shown("reference time / kernel time")] = 1.0
    """A correct kernel at least this fast ends its episode."""
    retry_failed: Annotated[bool, Shown("switch")] = False
    """Try episodes without a correct turn once more from scratch, after all others."""

    output: Annotated[str, Shown("folder or URL", None, "local folder or s3://BUCKET/PREFIX")] = "reasoning_traces"
    """Where the traces go. A run that was stopped goes on when it is started again on the same output."""
    save_interval: Annotated[int, Field(ge=1, le=100_000), Shown("episodes")] = 10
    """Flush traces after this many finished episodes."""

    device: Annotated[Literal["auto", "cuda", "cpu"], Shown("device")] = "auto"
    """Where kernels are verified: GPUs, or the Triton interpreter on CPUs (no timing). auto takes GPUs
    where the cluster has some."""
    bench_workers: Annotated[
        str | None, Shown("workers", "one per GPU, on CPUs one", "N or MIN:MAX, with MIN from 0 and MAX to 1024")
    ] = None
    """Workers that verify kernels, each a process group of its own in a Ray actor. MIN:MAX lets them follow the queue,
    and an autoscaler the workers."""
    bench_idle: Annotated[float, Field(ge=0, le=86_400), Shown("seconds")] = 120.0
    """With MIN:MAX: how long a worker that is not needed stays before it gives its node back."""
    bench_cpus: Annotated[float | None, Field(gt=0, le=1024), Shown("CPUs", "1, less where fewer are free")] = None
    """CPUs that each worker reserves of its node. Without GPUs it decides how many workers a node takes."""
    bench_nodes: Annotated[Literal["auto", "labelled", "any"], Shown("nodes")] = "auto"
    """Nodes for workers: those labelled kb-pool=bench, or any, which others may use too. auto means labelled in a
    cluster that has the label kb-pool on some node."""
    bench_concurrency: Annotated[
        int | None, Field(ge=1, le=64), Shown("candidates", f"{AT_ONCE['cuda']} on a GPU, {AT_ONCE['cpu']} on a CPU")
    ] = None
    """Candidates that one worker loads, compiles and checks at once; timing is always alone."""
    n_correctness: Annotated[int, Field(ge=1, le=100), Shown("input sets")] = 5
    """Input sets a kernel must pass."""
    n_trials: Annotated[int, Field(ge=3, le=10_000), Shown("calls")] = 50
    """Timed calls of each side."""
    timeout: Annotated[float, Field(gt=0, le=3600), Shown("seconds per phase")] = 60.0
    """Time for each phase (load, compile, run), counted while running and not while waiting."""

    torch_ops: Annotated[Literal["allow", "report", "forbid"], Shown("policy")] = "report"
    """PyTorch operators that compute within a kernel's code: ignore them, report them, or call it a hack."""
    generalise: Annotated[Literal["off", "report", "require"], Shown("policy")] = "report"
    """Try correct kernels at another shape and dtype: never, as evidence, or as a condition of being correct."""
    baseline: Annotated[Literal["eager", "compile"], Shown("baseline")] = "eager"
    """compile also times the reference through torch.compile; speedups stay those over eager."""
    measure_performance: Annotated[bool, Shown("switch")] = True
    """Time correct kernels where there is a GPU."""
    tf32: Annotated[bool, Shown("switch")] = False
    """Allow TF32 in float32 products, on both sides alike."""
    exclude_flagged: Annotated[bool, Shown("switch")] = False
    """Leave out tasks that the task gate flags: trivially solved, constant, or not deterministic."""

    max_hours: Annotated[float | None, Field(gt=0, le=10_000), Shown("hours", "no limit")] = None
    """Stop cleanly after this time; start again to go on."""
    max_tokens_total: Annotated[int | None, Field(ge=1, le=10**13), Shown("tokens", "no limit")] = None
    """Stop cleanly once this many tokens were generated."""
    max_gpu_hours: Annotated[float | None, Field(gt=0, le=10**6), Shown("GPU hours", "no limit")] = None
    """Stop cleanly once verdicts took this much GPU time."""
    ray_address: Annotated[
        str | None,
        Shown("host:port", "RAY_ADDRESS, else a cluster started here, else a new local one", "a running cluster"),
    ] = None
    """Ray cluster to join."""
    log_format: Annotated[Literal["text", "json"], Shown("format")] = "text"
    """json says everything on stderr as one JSON object a line, with the ids of run and episode."""
    shard: Annotated[str | None, Shown("shard", "the whole run", "I/N, I from 1 to N")] = None
    """Run only this part of the episodes. Starts with different I may share one output."""
    dry_run: Annotated[bool, Shown("switch")] = False
    """Check everything, show the plan and the first prompt, write nothing."""

    @field_validator("vllm_url")
    @classmethod
    def _http(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        return url.rstrip("/")

    @field_validator("output")
    @classmethod
    def _folder_or_s3(cls, output: str) -> str:
        if not output or ("://" in output and not output.startswith("s3://")):
            raise ValueError("must be a local folder or s3://BUCKET/PREFIX")
        return output

    @field_validator("bench_workers", mode="before")
    @classmethod
    def _count_or_range(cls, workers: object) -> object:
        text = str(workers) if type(workers) is int else workers
        if isinstance(text, str):
            low, colon, high = text.partition(":")
            numbers = [int(n) if n.isascii() and n.isdigit() else -1 for n in ((low, high) if colon else (low, low))]
            if not (0 <= numbers[0] <= numbers[1] and 1 <= numbers[1] <= MOST_WORKERS):
                raise ValueError(f"must be N or MIN:MAX, with MAX from 1 to {MOST_WORKERS} and MIN from 0 to MAX")
        return text

    @field_validator("shard")
    @classmethod
    def _one_of_some(cls, shard: str | None) -> str | None:
        return None if shard is None else str(Shard.of(shard))

    @property
    def worker_counts(self) -> int | tuple[int, int] | None:
        """--bench-workers as a number, as (fewest, most), or None where it is left open."""
        if self.bench_workers is None:
            return None
        low, colon, high = self.bench_workers.partition(":")
        return (int(low), int(high)) if colon else int(low)

    @property
    def turns(self) -> int:
        """Turns of an episode at most: 1 without --multi-turn."""
        return self.max_turns if self.multi_turn else 1

    @property
    def scripted(self) -> bool:
        """Whether answers come from a script instead of a server."""
        return self.model is not None and self.model.partition(":")[0] == "scripted"

    @property
    def script(self) -> str | None:
        """File of a scripted model; None is the built-in script."""
        return (self.model or "").partition(":")[2] or None

    def sample_counts(self) -> tuple[int | None, int | None]:
        """(KernelBook, KernelBench) samples, with the defaults of a run that asks for nothing."""
        if not self.tasks and self.kernelbook_samples is None and self.kernelbench_samples is None:
            return KERNELBOOK_DEFAULT, KERNELBENCH_DEFAULT
        return self.kernelbook_samples, self.kernelbench_samples

    def sampling(self, seed: int) -> Sampling:
        """Sampling parameters of one request."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens, seed=seed)

    def bench_settings(self, device: Literal["cuda", "cpu"]) -> BenchSettings:
        """How candidates are verified on the device that `auto` came to mean."""
        return BenchSettings(
            n_correctness=self.n_correctness, n_trials=self.n_trials, timeout_s=self.timeout, device=device,
            torch_ops=self.torch_ops, generalise=self.generalise, baseline=self.baseline,
            measure_performance=self.measure_performance, tf32=self.tf32,
        )  # fmt: skip

    def public(self) -> dict[str, Any]:
        """Every setting of the run in JSON form, without secrets: what run.json keeps, the same for every shard."""
        told = self.model_dump(mode="json", exclude={"api_key", "shard"})
        return told | {"vllm_url": _USERINFO.sub("", self.vllm_url)}


def identity(
    config: RunConfig, *, model: str, script_sha: str | None, prompt_sha: str, device: Literal["cuda", "cpu"]
) -> dict[str, Any]:
    """What changes the content of traces, by the name a user knows it by.

    Left out on purpose: where and how fast a run goes (URLs, paths, concurrency) and how much it does
    (tasks, samples, budgets), so that a run can be moved, sharded and extended.
    """
    bench = config.bench_settings(device)
    return {
        "model": model,
        "script": script_sha,
        "temperature": config.temperature,
        "top-p": config.top_p,
        "max-tokens": config.max_tokens,
        "context": config.context,
        "seed": config.seed,
        "prompt": prompt_sha,
        "turns": config.turns,
        "target-speedup": config.target_speedup,
        "n-correctness": bench.n_correctness,
        "n-trials": bench.n_trials,
        "n-warmup": bench.n_warmup,
        "timeout": bench.timeout_s,
        "device": bench.device,
        "torch-ops": bench.torch_ops,
        "generalise": bench.generalise,
        "baseline": bench.baseline,
        "measure-performance": bench.measure_performance,
        "tf32": bench.tf32,
        "verifier version": VERIFIER_VERSION,
    }
