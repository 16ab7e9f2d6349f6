"""The settings of best-of-N and GRPO: those of training, tasks, rollouts, rewards and what is minimised.

Names and defaults are those of the second document for best-of-N and of the third for GRPO. Does not know how anything
is done.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from kb_ray.bench.protocol import BenchSettings
from kb_ray.config import Shown
from kb_ray.learn.advantage import Estimator, Pool
from kb_ray.learn.curriculum import LevelRule
from kb_ray.learn.grpo import GrpoRule
from kb_ray.learn.objective import Averaging, Clip, Objective
from kb_ray.records import Sampling
from kb_ray.score.reward import RewardRule, Scheme, Weights
from kb_ray.training.settings import TrainSettings

_WEIGHTS = ("reward_format_weight", "reward_compile_weight", "reward_correctness_weight", "reward_speed_weight")
Share = Annotated[float, Field(ge=0, le=1), Shown("share")]


class RolloutSettings(TrainSettings):
    """What best-of-N and GRPO have in common."""

    tasks: Annotated[tuple[str, ...], Shown("SPEC", "KernelBench of --level", "task sources")] = ()
    """Tasks to train on, repeatable: builtin, folder:PATH, file:PATH, kernelbench[:LEVELS], kernelbook[:PATH]."""
    level: Annotated[tuple[int, ...], Shown("LEVEL", None, "KernelBench levels")] = (1,)
    """Levels of KernelBench, where no tasks are named."""
    kernelbench_root: Annotated[str | None, Shown("folder", "a checkout nearby, else the hub", "folder")] = None
    """A checkout of KernelBench."""
    steps: Annotated[int, Field(ge=1, le=1_000_000), Shown("batches")] = 100
    """Batches of tasks. A run that is over goes on where it is started again with more."""
    batch_size: Annotated[int, Field(ge=1, le=10_000), Shown("tasks per batch")] = 4
    """Tasks of one batch."""
    group_size: Annotated[int, Field(ge=2, le=1024), Shown("rollouts per task")] = 4
    """Rollouts of each."""
    max_tokens: Annotated[int, Field(ge=1, le=1 << 20), Shown("tokens per answer")] = 4096
    """Tokens of an answer at most."""
    temperature: Annotated[float, Field(gt=0, le=2), Shown("softmax temperature")] = 1.0
    """Of the rollouts; nothing else shapes them."""
    rollout_tokens: Annotated[int, Field(ge=1, le=1 << 24), Shown("tokens")] = 65536
    """Tokens of prompts and answers of a process in memory at once while answers are drawn. Less where memory runs
    out; another number of them draws other random numbers."""
    vllm_url: Annotated[str | None, Shown("URL", "none: drawn in this process")] = None
    """A vLLM server with LoRA that draws the answers, such as http://HOST:8000/v1. The next batch is then drawn while
    the weights learn from this one."""
    served_model: Annotated[str | None, Shown("name", "the one served", "base model at --vllm-url")] = None
    """The base model's name at that server."""
    adapters_path: Annotated[str | None, Shown("URL", "none", "s3://BUCKET/PREFIX")] = None
    """Where that server looks for adapters (dynamic_lora_loading_path): each step is published there."""
    max_staleness: Annotated[int, Field(ge=0, le=64), Shown("optimizer steps")] = 1
    """GRPO: answers that are older than so many steps are not learned from."""
    prompt_option: Annotated[str, Shown("name or path", None, "template")] = "default"
    """Prompt template, as --prompt of a run; raicl needs an index."""
    rag_index_path: Annotated[str | None, Shown("folder or URL", "none", "index")] = None
    """Index of examples for prompts."""
    rag_model: Annotated[str | None, Shown("name or folder", "the index's", "embedding model")] = None
    """Embedding model of the index, where it lies elsewhere here."""
    raicl_k: Annotated[int, Field(ge=1, le=16), Shown("examples")] = 3
    """Examples of each prompt."""
    raicl_tokens: Annotated[int, Field(ge=100, le=1_000_000), Shown("tokens")] = 12_000
    """Tokens of all examples of a prompt, at most, rather overestimated."""
    raicl_overlap: Annotated[float, Field(gt=0, le=1), Shown("share of token runs")] = 0.9
    """Overlap with the task's program from which an example counts as the task itself and is left out."""
    raicl_cuda: Annotated[bool, Shown("switch")] = False
    """Let CUDA examples be shown too."""
    reward: Annotated[Scheme, Shown("scheme", "kevin; weighted where a weight or stages are named")] = "kevin"
    """kevin: 0.3 and the speedup; staged: by stage, up to 1; weighted: by the weights below."""
    reward_format_weight: Share = 0.1
    """Weight of giving code."""
    reward_compile_weight: Share = 0.2
    """Weight of compiling."""
    reward_correctness_weight: Share = 0.7
    """Weight of tests passed."""
    reward_speed_weight: Share = 0.0
    """Weight of speed, of correct kernels."""
    reward_stages: Annotated[bool, Shown("switch")] = False
    """The third document's three stages one after the other, by their success, in place of these weights."""
    curriculum: Annotated[bool, Shown("switch")] = False
    """Harder levels come in by success, and tasks that are always or never solved are left alone."""
    curriculum_start_p: Share = 0.1
    """Share of level 2 at the beginning."""
    curriculum_end_p: Share = 0.5
    """Share of level 2 at most."""
    curriculum_trigger_threshold: Share = 0.4
    """Mean accuracy of level 1 from which level 2 grows."""
    exclude_flagged: Annotated[bool, Shown("switch")] = True
    """Leave out tasks that a kernel which computes nothing would pass."""
    allow_untimed: Annotated[bool, Shown("switch")] = False
    """Let verdicts of a CPU be rewards, for correctness alone: for tests."""
    device: Annotated[Literal["auto", "cuda", "cpu"], Shown("device")] = "auto"
    """Where kernels are judged."""
    bench_workers: Annotated[int | None, Field(ge=1, le=1024), Shown("workers", "one per GPU")] = None
    """Workers that judge kernels."""
    bench_concurrency: Annotated[int, Field(ge=1, le=256), Shown("kernels per worker")] = 12
    """Kernels that a worker loads and checks at once; each is timed alone."""
    timeout: Annotated[float, Field(gt=0, le=3600), Shown("seconds")] = 30.0
    """For each phase of a kernel."""
    n_correctness: Annotated[int, Field(ge=1, le=100), Shown("input sets")] = 5
    """Input sets of each verdict."""
    n_trials: Annotated[int, Field(ge=3, le=10_000), Shown("timed calls")] = 50
    """Timed calls of each side."""
    n_warmup: Annotated[int, Field(ge=1, le=1_000), Shown("calls")] = 10
    """Untimed calls before the timed ones."""
    measure_performance: Annotated[bool, Shown("switch")] = True
    """Time correct kernels. Without it rewards are for correctness alone, and a verdict takes less of the GPU."""

    _index: str | None = PrivateAttr(default=None)

    def of_index(self, content: str) -> Self:
        """The same settings with the hash of what their index holds."""
        found = self.model_copy()
        found._index = content
        return found

    def _told(self) -> dict[str, Any]:
        """An index counts by its content where that is known, and may be moved."""
        found = super()._told()
        del found["rag_model"]
        return found | {"rag_index_path": self._index or self.rag_index_path}

    def sampling(self) -> Sampling:
        """How answers are drawn."""
        return Sampling(temperature=self.temperature, max_tokens=self.max_tokens)

    @model_validator(mode="before")
    @classmethod
    def _weights_mean_weighted(cls, given: Any) -> Any:
        """As the third document's commands mean them, which name weights and no scheme."""
        if isinstance(given, dict) and "reward" not in given and {*_WEIGHTS, "reward_stages"} & given.keys():
            return {**given, "reward": "weighted"}
        return given

    @model_validator(mode="after")
    def _weights_count(self) -> Self:
        fields = RolloutSettings.model_fields
        own = [name for name in _WEIGHTS if getattr(self, name) != fields[name].default]
        if self.reward != "weighted" and (own or self.reward_stages):
            named = own[0] if own else "reward_stages"
            raise ValueError(f"--{named.replace('_', '-')} does nothing with --reward {self.reward}: give weighted")
        if self.reward_stages and own:
            flag = own[0].replace("_", "-")
            raise ValueError(
                f"--{flag} does nothing with --reward-stages, whose stages have weights of their own: "
                "give --no-reward-stages, or leave the weight out"
            )
        return self

    def bench(self, device: Literal["cuda", "cpu"]) -> BenchSettings:
        """What a verdict asks for."""
        return BenchSettings(
            device=device, timeout_s=self.timeout, n_correctness=self.n_correctness, n_trials=self.n_trials,
            n_warmup=self.n_warmup, measure_performance=self.measure_performance,
        )  # fmt: skip

    def reward_rule(self) -> RewardRule:
        """How verdicts become rewards."""
        weights = Weights(
            format=self.reward_format_weight, compile=self.reward_compile_weight,
            correctness=self.reward_correctness_weight, speed=self.reward_speed_weight,
        )  # fmt: skip
        return RewardRule(scheme=self.reward, weights=weights, allow_untimed=self.allow_untimed)

    def levels(self) -> LevelRule:
        """When harder levels come in."""
        return LevelRule(
            start_p=self.curriculum_start_p, end_p=self.curriculum_end_p, threshold=self.curriculum_trigger_threshold
        )


class BestOfNSettings(RolloutSettings):
    """Best-of-N: draw N answers to each task, keep the best, learn them as SFT does, and again."""

    group_size: Annotated[int, Field(ge=2, le=1024), Shown("answers per task")] = 10
    """Answers of each task: N."""
    keep: Annotated[int, Field(ge=1, le=1024), Shown("answers per task")] = 3
    """Best right answers of each task that are learned."""
    reward: Annotated[Scheme, Shown("scheme", "staged; weighted where a weight or stages are named")] = "staged"
    """staged: by stage, up to 1; kevin: 0.3 and the speedup; weighted: by the weights."""

    def rule(self) -> GrpoRule:
        """How a step is made."""
        return GrpoRule(
            batch_size=self.batch_size, group_size=self.group_size, keep=self.keep, reward=self.reward_rule(),
            reward_stages=self.reward_stages, curriculum=self.curriculum, levels=self.levels(), seed=self.seed,
            n_correctness=self.n_correctness,
        )  # fmt: skip

    def objective(self) -> Objective:
        """What is minimised."""
        return Objective(kind="likelihood", averaging="token")


class GrpoSettings(RolloutSettings):
    """GRPO over one or several turns, with LoRA: each turn learns from its own discounted return."""

    lora_rank: Annotated[int, Field(ge=1, le=512), Shown("rank")] = 32
    """Of the LoRA adapter. vLLM serves 8, 16, 32, 64, 128, 256, 320 and 512."""
    mode: Annotated[Literal["single_turn", "multi_turn"], Shown("mode")] = "single_turn"
    """One answer to each task, or several with feedback between them."""
    max_turns: Annotated[int, Field(ge=1, le=64), Shown("turns")] = 4
    """Turns of a rollout in multi_turn; all of them are taken, also after a success."""
    gamma: Annotated[float, Field(ge=0, le=1), Shown("discount")] = 0.4
    """What a later turn's score counts in the return of the turn before."""
    advantage: Annotated[Estimator, Shown("estimator")] = "mean"
    """mean: return minus the mean; grpo: divided by the deviation too; rloo: minus the mean of the others."""
    baseline: Annotated[Pool, Shown("pool")] = "turn"
    """What a return is compared with: the same turn of the task's other rollouts, or all their turns."""
    averaging: Annotated[Averaging, Shown("average")] = "constant"
    """constant: per answer of --max-tokens; token: per token of the step; sequence: per answer of its own length."""
    clip_low: Annotated[float, Field(gt=0, lt=1), Shown("ratio")] = 0.2
    """How far a probability may fall in a step before it no longer counts."""
    clip_high: Annotated[float, Field(gt=0, le=10), Shown("ratio")] = 0.28
    """How far it may rise."""
    kl_beta: Annotated[float, Field(ge=0, le=10), Shown("weight")] = 0.0
    """Weight of the distance from the model without its adapter."""
    updates: Annotated[int, Field(ge=1, le=64), Shown("optimizer steps")] = 1
    """Optimizer steps over each batch."""

    def rule(self) -> GrpoRule:
        """How a step is made."""
        return GrpoRule(
            batch_size=self.batch_size, group_size=self.group_size,
            max_turns=self.max_turns if self.mode == "multi_turn" else 1, gamma=self.gamma, estimator=self.advantage,
            pool=self.baseline, parts=self.updates, reward=self.reward_rule(), reward_stages=self.reward_stages,
            curriculum=self.curriculum, levels=self.levels(), max_staleness=self.max_staleness, seed=self.seed,
            n_correctness=self.n_correctness,
        )  # fmt: skip

    def objective(self) -> Objective:
        """What is minimised."""
        return Objective(
            kind="policy", averaging=self.averaging, length=self.max_tokens,
            clip=Clip(low=self.clip_low, high=self.clip_high), kl_beta=self.kl_beta, temperature=self.temperature,
        )  # fmt: skip
