"""A LoRA adapter that Tinker's service trains: the same samples as the learner here, sent over its own SDK.

What is minimised is the same too, as far as the service can: no KL to the model without its adapter, no dual clip, and
probabilities are compared with the sampler's own. Knows the SDK and samples; no task, reward or file of checkpoints.
"""

from __future__ import annotations

import difflib
import math
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kb_ray.env_vars import TINKER_KEY, TINKER_URL
from kb_ray.errors import ConfigError, KbRayError
from kb_ray.learn.network import tokenizer_of
from kb_ray.learn.objective import LearnerSettings, Objective
from kb_ray.learn.samples import Sample
from kb_ray.learn.stepping import NotFinite, StepReport, learning_rate

_MLP = ("gate_proj", "up_proj", "down_proj")
_DOWNLOAD_S = 600.0
_CLOSE_S = 30.0


class TinkerFailure(KbRayError):
    """The service did not do what it was asked for."""


@contextmanager
def asked(doing: str) -> Iterator[None]:
    """What goes wrong at the service while `doing`, as one line: ConfigError for a key that it refuses."""
    try:
        yield
    except KbRayError:
        raise
    # Anything can come out of the SDK: its own errors, ValueError for lost results, RuntimeError after a failure.
    except Exception as error:
        status, line = getattr(error, "status_code", None), _line(error)
        if status in (401, 403) or "api_key" in line:
            raise ConfigError(f"Tinker refuses the key in {TINKER_KEY}: {line}") from error
        raise TinkerFailure(
            f"Tinker failed while {doing}: {line}; when its service is well, start the same command again"
        ) from error


class TinkerLearner:
    """One model under training at the service, a `stepping.Trainee`. Used by one thread."""

    def __init__(self, settings: LearnerSettings) -> None:
        """ConfigError where the package or the key is missing, or the key is refused."""
        try:
            import tinker
        except ImportError as error:
            raise ConfigError("--learner tinker needs a package: pip install 'kb-ray[tinker]'") from error
        if not os.environ.get(TINKER_KEY):
            raise ConfigError(f"--learner tinker: set {TINKER_KEY}, in the environment or in .env")
        self.settings = settings
        self.steps = 0
        self._sdk: Any = tinker
        self._training: Any = None
        where: dict[str, Any] = {"base_url": os.environ.get(TINKER_URL), "api_key": os.environ[TINKER_KEY]}
        with asked("asking which models it has"):
            self._rest: Any = tinker.RestClient(**where)
            models = self._rest.get_server_capabilities().result().supported_models
        self.window = _window(settings.model, models)
        """Tokens that fit into the model's window, where the service says so."""
        self._service: Any = tinker.ServiceClient(display_name="kb_ray", **where)
        self.tokenizer = tokenizer_of(settings.model)

    def learning_rate(self) -> float:
        """Of the next step."""
        return learning_rate(self.settings, self.steps)

    def step(self, samples: Sequence[Sample], objective: Objective) -> StepReport:
        """One optimizer step over all of `samples`."""
        return self.epoch(samples, objective, parts=1)[0]

    def epoch(self, samples: Sequence[Sample], objective: Objective, parts: int) -> list[StepReport]:
        """As many optimizer steps as `parts`, each over its share, all against the sampler's probabilities."""
        return [self._step(samples[part::parts], objective) for part in range(parts)]

    def _step(self, samples: Sequence[Sample], objective: Objective) -> StepReport:
        rate, scales = self.learning_rate(), _scales(samples, objective)
        likelihood = objective.kind == "likelihood"
        data = [self._datum(s, scale, likelihood) for s, scale in zip(samples, scales, strict=True)]
        low, high = 1 - objective.clip.low, 1 + objective.clip.high
        config = None if likelihood else {"clip_low_threshold": low, "clip_high_threshold": high}
        with asked(f"learning step {self.steps + 1}"):
            loss = "cross_entropy" if likelihood else "ppo"
            output = self._client().forward_backward(data, loss, config).result()
            found = [told["logprobs"].tolist() for told in output.loss_fn_outputs]
        report = _report(samples, scales, found, objective, rate)
        if not math.isfinite(report.loss):
            raise NotFinite(f"step {self.steps + 1}: the loss is {report.loss}: the step was not taken; lower the "
                            "learning rate")  # fmt: skip
        with asked(f"taking step {self.steps + 1}"):
            self._client().optim_step(self._adam(rate)).result()
        self.steps += 1
        return report

    def _datum(self, sample: Sample, scale: float, likelihood: bool) -> Any:
        """What predicts each token is all before it, so that everything is of one token less than the sample has."""
        trained = sample.trained[1:]
        weights = [sample.advantage * scale * told for told in trained]
        inputs: dict[str, list[float] | list[int]] = {"target_tokens": list(sample.tokens[1:])}
        if likelihood:
            inputs["weights"] = weights
        else:
            inputs |= {"advantages": weights, "logprobs": _laid_out(sample)}
        given = self._sdk.ModelInput.from_ints(list(sample.tokens[:-1]))
        return self._sdk.Datum(model_input=given, loss_fn_inputs=inputs)

    def _adam(self, rate: float) -> Any:
        return self._sdk.AdamParams(
            learning_rate=rate, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=self.settings.weight_decay,
            grad_clip_norm=self.settings.gradient_norm,
        )  # fmt: skip

    def _client(self) -> Any:
        """What trains, made when it is first needed: a run that goes on brings its own."""
        if self._training is None:
            targets = set(self.settings.lora.target_modules)
            with asked(f"making a model of {self.settings.model}"):
                self._training = self._service.create_lora_training_client(
                    base_model=self.settings.model, rank=self.settings.lora.rank, seed=self.settings.seed,
                    train_mlp=bool(targets & set(_MLP)), train_attn=bool(targets - set(_MLP)), train_unembed=False,
                ).result()  # fmt: skip
        return self._training

    def sampling_client(self) -> Any:
        """What answers with the weights as they are now."""
        with asked("publishing weights"):
            return self._client().save_weights_and_get_sampling_client().result()

    def adapter(self) -> dict[str, bytes]:
        """The adapter's files, fetched from the service."""
        import httpx

        with asked("exporting the adapter"):
            # A name of its own each time: a step that is taken again after a crash is another one.
            name = f"step{self.steps:06d}-{secrets.token_hex(3)}"
            path = self._client().save_weights_external(name).result().path
            urls = self._rest.get_external_weights_urls(path).result().urls
            answers = {name: httpx.get(url, timeout=_DOWNLOAD_S).raise_for_status() for name, url in urls.items()}
        return {name.rpartition("/")[2]: answer.content for name, answer in answers.items()}

    def state(self) -> dict[str, Any]:
        """Where the service keeps weights and optimizer, and the steps."""
        with asked("keeping its state"):
            kept = self._client().save_state(f"step{self.steps:06d}", overwrite=True).result()
        return {"tinker": kept.path, "steps": self.steps}

    def restore(self, state: dict[str, Any], weights: bytes | None = None) -> None:
        """Go on with what the service kept."""
        with asked("going on with what it kept"):
            self._training = self._service.create_training_client_from_state_with_optimizer(state["tinker"]).result()
        self.steps = int(state["steps"])

    def begin_with(self, weights: bytes | None, state: dict[str, Any] | None) -> None:
        """Begin with the weights of another run at the service."""
        if state is None or "tinker" not in state:
            raise ConfigError("--start-from: Tinker begins with what was trained there: give the output of such a run")
        with asked("beginning with another run's weights"):
            self._training = self._service.create_training_client_from_state(state["tinker"]).result()

    def close(self) -> None:
        """End the session; one that cannot be ended ends by itself."""
        with suppress(Exception):
            self._service.close("success").result(_CLOSE_S)


def _window(model: str, offered: Sequence[Any]) -> int | None:
    """The context of one of the models that are offered; ConfigError where it is none of them."""
    known = {one.model_name: one for one in offered if one.trainable is not False}
    if model not in known:
        near = difflib.get_close_matches(model, [name for name in known if name], n=3, cutoff=0.6)
        raise ConfigError(
            f"--model-name: Tinker does not train {model}" + (f"; near: {', '.join(near)}" if near else "")
        )
    window: int | None = known[model].max_context_length
    return window


def _scales(samples: Sequence[Sample], objective: Objective) -> list[float]:
    """What each token of a sample is multiplied by, so that the service's sums are the averages of `loss.averaged`."""
    sequences, tokens = max(len(samples), 1), max(sum(sum(sample.trained) for sample in samples), 1)
    if objective.averaging == "token":
        return [1 / tokens] * len(samples)
    if objective.averaging == "constant":
        return [1 / (sequences * max(objective.length, 1))] * len(samples)
    return [1 / (sequences * max(sum(sample.trained), 1)) for sample in samples]


def _laid_out(sample: Sample) -> list[float]:
    """The sampler's log-probabilities where its tokens stand among the predicted ones; 0 elsewhere."""
    if sample.logprobs is None:
        raise TinkerFailure(f"{sample.task_id}: an answer without probabilities cannot be learned from at Tinker")
    told = iter(sample.logprobs)
    return [next(told) if trained else 0.0 for trained in sample.trained[1:]]


def _report(
    samples: Sequence[Sample], scales: Sequence[float], found: Sequence[Sequence[float]], objective: Objective,
    rate: float,
) -> StepReport:  # fmt: skip
    """The loss that the service minimised, computed from the log-probabilities that it gives back."""
    loss = mismatch = 0.0
    clipped = tokens = drawn = 0
    low, high = 1 - objective.clip.low, 1 + objective.clip.high
    for sample, scale, logprobs in zip(samples, scales, found, strict=True):
        before = [0.0] * len(logprobs) if sample.logprobs is None else _laid_out(sample)
        for trained, new, old in zip(sample.trained[1:], logprobs, before, strict=True):
            if not trained:
                continue
            tokens, advantage = tokens + 1, sample.advantage
            if objective.kind == "likelihood":
                loss -= scale * advantage * new
                continue
            ratio = math.exp(max(-20.0, min(20.0, new - old))) if math.isfinite(new) else math.nan
            loss -= scale * min(ratio * advantage, max(low, min(high, ratio)) * advantage)
            clipped += (ratio > high and advantage > 0) or (ratio < low and advantage < 0)
            mismatch, drawn = mismatch + abs(new - old), drawn + 1
    return StepReport(loss, math.nan, rate, tokens, clipped / max(tokens, 1), 0.0, mismatch / max(drawn, 1), left_out=0)


def _line(error: BaseException) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return text[:300]
