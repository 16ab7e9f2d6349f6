"""Everything that can be found out before the first token: tasks, store, model, run identity, cluster.

Each check ends in a ConfigError of one line. Writes nothing and leaves nothing behind, so a run that is
refused here has not begun. Does not run episodes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import kb_ray
from kb_ray import cluster as ray_cluster
from kb_ray.bench.site import Site, site
from kb_ray.bench.site import installed_version as installed_version
from kb_ray.bench_nodes import BenchNodes, look
from kb_ray.config import RunConfig, identity
from kb_ray.errors import ConfigError, StoreError
from kb_ray.model.completer import Completer, ModelInfo
from kb_ray.prompts.opening import PromptSetting, template_text
from kb_ray.raicl import Examples, open_examples, opening
from kb_ray.ready import Planned as Planned
from kb_ray.ready import Ready as Ready
from kb_ray.ready import files_of, finished_in
from kb_ray.ready import remaining as remaining
from kb_ray.tasks import Sources, plan
from kb_ray.tasks.rows import read_columns
from kb_ray.traces.run import OTHER_OUTPUT, RunInfo, fingerprint, open_run, read_run
from kb_ray.traces.shards import Shard
from kb_ray.traces.store import Store, open_store
from kb_ray.wording import wording


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
    sources, shard = _sources(config), Shard.of(config.shard)
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
        everything = planned or _plan(sources, on_skip, select)
        planned = [(task, sample) for task, sample in everything if shard.holds(task.task_id, sample)]
        run_id = stored.run_id if stored else _new_run_id()
        device, cluster = _device(config, stored, run_id)
        examples = open_examples(config, model.max_model_len if config.context is None else config.context)
        run = _run_info(config, run_id, model.model, prompt_sha, device, examples)
        if stored is not None:
            open_run(store, run)
        where = BenchNodes(site())
        seen = files_of(store) if stored else ()
        work, again = remaining(planned, finished_in(store) if stored else {}, config.retry_failed)
        if (work or again) and not config.dry_run:
            if cluster is None:
                _check_gpu(config, device)
                cluster = ray_cluster.connect(run_id, config.ray_address)
            where = look(config, device, cluster.joined)
        prompt = _prompt_setting(config, device, cluster, where.site)
        opening(examples, everything[0][0], prompt)
    except BaseException:
        await completer.aclose()
        raise
    return Ready(
        config=config,
        everything=everything,
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
        seen=seen,
        warnings=where.warnings,
    )


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
        timeout_s=config.answer_timeout,
        max_concurrent=config.batch_size,
    )


def versions() -> dict[str, str]:
    """Versions of what takes part, by name, without importing any of it."""
    found = {"kb_ray": kb_ray.__version__, "wording": wording(), "python": platform.python_version()}
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
        return read_run(store, OTHER_OUTPUT)
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


def _check_gpu(config: RunConfig, device: Literal["cuda", "cpu"]) -> None:
    """ConfigError where verdicts need a GPU, no cluster is there to join, and none is seen on this machine.

    `--bench-workers 0:8` waits for nodes, which may join what is started here too.
    """
    alone = ray_cluster.known_address(config.ray_address) is None and not isinstance(config.worker_counts, tuple)
    if device == "cuda" and alone and not ray_cluster.local_gpus() and not ray_cluster.unseen_gpus():
        why = "--device cuda" if config.device == "cuda" else f"output {config.output} was begun on a GPU"
        raise ConfigError(
            f"{why}: no NVIDIA GPU is seen on this machine (look at CUDA_VISIBLE_DEVICES), and there is no Ray cluster "
            "to join: name one with --ray-address, or give --device cpu and an --output of its own"
        )


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
    return hashlib.sha256(Path(os.path.expanduser(config.script)).read_bytes()).hexdigest()[:16]


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
