"""Everything that can be found out before the first token: tasks, store, model, run identity, cluster.

Each check ends in a ConfigError of one line. Writes nothing and leaves nothing behind, so a run that is
refused here has not begun. Does not run episodes.
"""

from __future__ import annotations

import hashlib
import platform
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import kb_ray
from kb_ray import cluster as ray_cluster
from kb_ray.bench.protocol import BenchSettings
from kb_ray.bench.site import Site, site
from kb_ray.bench.site import installed_version as installed_version
from kb_ray.bench_nodes import BenchNodes, look
from kb_ray.config import RunConfig, identity
from kb_ray.drive import Work
from kb_ray.errors import ConfigError, StoreError
from kb_ray.model.completer import Completer, ModelInfo
from kb_ray.prompts.budget import Messages
from kb_ray.prompts.opening import PromptSetting, template_text
from kb_ray.raicl import Examples, open_examples, opening
from kb_ray.records import REDONE_ON_RESUME, Retrieved, Task
from kb_ray.tasks import Sources, plan
from kb_ray.tasks.rows import read_columns
from kb_ray.traces.resume import FinishedEpisode, finished
from kb_ray.traces.run import RunInfo, fingerprint, open_run, read_run
from kb_ray.traces.store import Store, open_store

Planned = list[tuple[Task, int]]


@dataclass(frozen=True)
class Ready:
    """A run that may begin."""

    config: RunConfig
    planned: Planned
    work: list[Work]
    """Episodes to run."""
    again: list[Work]
    """With --retry-failed: second attempts of episodes that earlier starts left without a correct turn."""
    store: Store
    run: RunInfo
    """What run.json holds, or will hold."""
    completer: Completer
    model: ModelInfo
    prompt: PromptSetting
    bench: BenchSettings
    cluster: ray_cluster.Cluster | None
    """None where nothing is to be run."""
    examples: Examples | None = None
    warnings: tuple[str, ...] = ()
    """What is no mistake and yet worth knowing, a line each."""

    @property
    def earlier(self) -> int:
        """Planned episodes that earlier starts finished."""
        return len(self.planned) - len(self.work)

    def opening(self, task: Task) -> tuple[Messages, Retrieved | None]:
        """First messages for a task, and which examples they show."""
        return opening(self.examples, task, self.prompt)

    @property
    def bench_concurrency(self) -> int:
        """Candidates that each worker takes at once."""
        return self.config.bench_concurrency or (12 if self.bench.device == "cuda" else 2)


async def preflight(
    config: RunConfig,
    on_skip: Callable[[str], None],
    *,
    completer: Completer | None = None,
    select: Callable[[Planned], Planned] | None = None,
) -> Ready:
    """Checks in the order of what is cheapest to find wrong. The caller closes `completer` and the cluster.

    `on_skip` gets one line for each malformed task. `completer` answers in place of the config's model; `select`
    takes what is wanted of the plan. Raises ConfigError.
    """
    sources = _sources(config)
    planned = [] if sources.asks_hub else _plan(sources, on_skip, select)
    prompt_sha = hashlib.sha256(template_text(config.prompt).encode()).hexdigest()[:16]
    store = open_store(config.output)
    store.check_writable()
    stored = _stored_run(store)
    completer = completer or make_completer(config)
    try:
        model = await completer.check()
        _check_window(config, model)
        # A data set takes minutes to fetch: not for a model that does not answer.
        planned = planned or _plan(sources, on_skip, select)
        run_id = stored.run_id if stored else _new_run_id()
        device, cluster = _device(config, stored, run_id)
        examples = open_examples(config, model.max_model_len if config.context is None else config.context)
        run = _run_info(config, run_id, model.model, prompt_sha, device, examples)
        if stored is not None:
            open_run(store, run)
        where = BenchNodes(site())
        work, again = remaining(planned, _finished(store) if stored else {}, config.retry_failed)
        if (work or again) and not config.dry_run:
            cluster = cluster or ray_cluster.connect(run_id, config.ray_address)
            where = look(config, device, cluster.joined)
        prompt = _prompt_setting(config, device, cluster, where.site)
        opening(examples, planned[0][0], prompt)
    except BaseException:
        await completer.aclose()
        raise
    return Ready(
        config=config,
        planned=planned,
        work=work,
        again=again,
        store=store,
        run=run,
        completer=completer,
        model=model,
        prompt=prompt,
        bench=config.bench_settings(device),
        cluster=cluster,
        examples=examples,
        warnings=where.warnings,
    )


def remaining(
    planned: Planned, done: Mapping[tuple[str, int], FinishedEpisode], retry_failed: bool
) -> tuple[list[Work], list[Work]]:
    """(episodes to run, second attempts to make after them) of a plan of which `done` is in the store.

    What ended in model_error or infra_error is run again as the next attempt.
    """
    work, again = [], []
    for task, sample in planned:
        known = done.get((task.task_id, sample))
        if known is None:
            work.append(Work(task, sample, 1))
        elif known.stop_reason in REDONE_ON_RESUME:
            work.append(Work(task, sample, known.attempt + 1))
        elif retry_failed and known.attempt == 1 and not known.correct:
            again.append(Work(task, sample, 2))
    return work, again


def make_completer(config: RunConfig) -> Completer:
    """The model that the config asks for; nothing is sent yet."""
    if config.scripted:
        from kb_ray.model.scripted import ScriptedCompleter

        return ScriptedCompleter.from_file(config.script)
    from kb_ray.model.openai_http import OpenAICompleter

    return OpenAICompleter(
        config.vllm_url,
        config.model or "",
        config.api_key.get_secret_value() if config.api_key else None,
        max_concurrent=config.batch_size,
    )


def versions() -> dict[str, str]:
    """Versions of what takes part, by name, without importing any of it."""
    found = {"kb_ray": kb_ray.__version__, "python": platform.python_version()}
    for package in ("ray", "torch", "triton", "pyarrow", "vllm"):
        if version := installed_version(package):
            found[package] = version
    return found


def _sources(config: RunConfig) -> Sources:
    kernelbook, kernelbench = config.sample_counts()
    return Sources(
        specs=config.tasks,
        kernelbook_samples=kernelbook,
        kernelbench_samples=kernelbench,
        samples=config.samples,
        seed=config.seed,
        kernelbench_root=config.kernelbench_root,
        columns=read_columns(config.column),
    )


def _plan(sources: Sources, on_skip: Callable[[str], None], select: Callable[[Planned], Planned] | None) -> Planned:
    planned = plan(sources, on_skip)
    if not planned:
        raise ConfigError("there is no usable task: give --tasks, or sample counts above 0")
    return select(planned) if select else planned


def _stored_run(store: Store) -> RunInfo | None:
    try:
        return read_run(store)
    except StoreError as error:
        raise ConfigError(f"--output: {error}") from None


def _finished(store: Store) -> dict[tuple[str, int], FinishedEpisode]:
    try:
        return finished(store)
    except StoreError as error:
        raise ConfigError(f"--output: {error}") from None


def _check_window(config: RunConfig, model: ModelInfo) -> None:
    window, served = config.context, model.max_model_len
    if window is not None and served is not None and window > served:
        raise ConfigError(f"--context: {window} is more than the {served} tokens that {model.model} is served with")
    window = served if window is None else window
    if window is not None and config.max_tokens >= window:
        raise ConfigError(
            f"--max-tokens: {config.max_tokens} does not fit {model.model}, whose window is {window} tokens "
            "with the prompt: lower it"
        )


def _device(
    config: RunConfig, stored: RunInfo | None, run_id: str
) -> tuple[Literal["cuda", "cpu"], ray_cluster.Cluster | None]:
    """What verdicts are reached on, and the cluster where it had to be asked.

    `auto` stays with what the run began on: GPU nodes that have not come up yet must not change it.
    """
    begun = stored.identity.get("device") if stored else None
    if config.device != "auto":
        return config.device, None
    if begun in ("cuda", "cpu"):
        return ("cuda" if begun == "cuda" else "cpu"), None
    if ray_cluster.known_address(config.ray_address) is None:
        return ("cuda" if ray_cluster.local_gpus() else "cpu"), None
    cluster = ray_cluster.connect(run_id, config.ray_address)
    return ("cuda" if cluster.gpus else "cpu"), cluster


def _run_info(
    config: RunConfig, run_id: str, model: str, prompt_sha: str, device: Literal["cuda", "cpu"],
    examples: Examples | None,
) -> RunInfo:  # fmt: skip
    fields = identity(config, model=model, script_sha=_script_sha(config), prompt_sha=prompt_sha, device=device)
    fields |= examples.identity if examples else {}
    return RunInfo(
        run_id=run_id,
        fingerprint=fingerprint(fields),
        identity=fields,
        config=config.public(),
        versions=versions(),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _script_sha(config: RunConfig) -> str | None:
    """Identity of a scripted model's answers: another script is another model."""
    if not config.scripted:
        return None
    if config.script is None:
        return "built-in"
    return hashlib.sha256(Path(config.script).expanduser().read_bytes()).hexdigest()[:16]


def _prompt_setting(
    config: RunConfig, device: Literal["cuda", "cpu"], cluster: ray_cluster.Cluster | None, where: Site
) -> PromptSetting:
    gpu = where.gpu or (cluster.gpu_type if cluster else None)
    return PromptSetting(
        template=config.prompt,
        device=device,
        gpu=gpu if device == "cuda" else None,
        torch=where.torch,
        triton=where.triton,
    )


def _new_run_id() -> str:
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
