"""A small service that speaks Tinker's protocol and really trains, with a model of a few thousand weights.

What the SDK needs and no more. Requests are worked on at once, and their results wait to be fetched.
"""

from __future__ import annotations

import copy
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tinker.proto import tinker_public_pb2 as wire

from kb_ray.learn.generating import Drawing, draw
from kb_ray.learn.network import adapter_files, load
from kb_ray.learn.objective import LearnerSettings, LoraSettings
from tests.unit.learn import tiny

KEY = "tml-test"
_LOGPROBS = "ArrayRecord"


@dataclass
class Service:
    """The models that were made, what was asked, and what is to fail."""

    model: Path
    asked: list[str] = field(default_factory=list)
    """Paths of all requests that do something."""
    losses: list[tuple[str, dict[str, float]]] = field(default_factory=list)
    """Loss functions with their settings."""
    adam: list[dict[str, Any]] = field(default_factory=list)
    fails: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By path: an HTTP status with a message; status 0: the request is taken and its result is the failure."""
    url: str = ""
    _trained: dict[str, Any] = field(default_factory=dict)
    _kept: dict[str, Any] = field(default_factory=dict)
    _results: dict[str, bytes | dict[str, Any]] = field(default_factory=dict)
    _files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    _numbers: Any = field(default_factory=itertools.count)

    def answer(self, path: str, body: bytes) -> dict[str, Any] | bytes:
        """The answer to one request: JSON, or bytes of a message."""
        name = path.rpartition("/api/v1/")[2]
        given = {} if name == "forward_backward" or not body else json.loads(body)
        simple: dict[str, Callable[[], dict[str, Any]]] = {
            "client/config": dict, "client/dynamic_config": dict, "telemetry": lambda: {"status": "accepted"},
            "session_heartbeat": dict, "create_session": lambda: {"session_id": "s"},
            "get_server_capabilities": lambda: {"supported_models": [
                {"model_name": str(self.model), "max_context_length": 4096}]},
            "get_info": lambda: {"model_id": given["model_id"], "model_data": {"model_name": str(self.model)}},
        }  # fmt: skip
        if name in simple:
            return simple[name]()
        if name == "retrieve_future":
            return self._results[given["request_id"]]
        if name.endswith("external_weights_urls"):
            return {"expires": "2030-01-01T00:00:00Z", "urls": {f: f"{self.url}/files/{f}" for f in self._files["x"]}}
        if path.startswith("/files/"):
            return self._files["x"][path.removeprefix("/files/")]
        self.asked.append(name)
        if name.startswith("sessions/"):
            return {}
        request_id = f"r{next(self._numbers)}"
        status, message = self.fails.get(name, (None, ""))
        if status == 0:
            self._results[request_id] = {"error": message, "category": "server"}
        else:
            self._results[request_id] = getattr(self, f"_{name}")(given, body)
        ids = [f"{request_id}-{n}" for n in range(given.get("num_samples", 0))]
        return {"request_id": request_id, "sample_sequence_ids": ids or None}

    def _create_model(self, given: dict[str, Any], body: bytes) -> dict[str, Any]:
        lora = given["lora_config"]
        settings = LearnerSettings(
            model=str(self.model), lora=LoraSettings(rank=lora["rank"], alpha=16, dropout=0.0), seed=lora["seed"]
        )
        network, _ = load(settings, "cpu")
        return {"model_id": self._add(given, network)}

    def _add(self, given: dict[str, Any], network: Any) -> str:
        # What the SDK takes for granted of models that are loaded.
        model_id = f"{given['session_id']}:train:{given['model_seq_id']}"
        weights = [part for part in network.parameters() if part.requires_grad]
        self._trained[model_id] = (network, torch.optim.AdamW(weights))
        return model_id

    def _forward_backward(self, given: dict[str, Any], body: bytes) -> bytes:
        request = wire.ForwardBackwardRequest.FromString(body)
        network, _ = self._trained[request.model_id]
        self.losses.append((request.loss_fn, dict(request.loss_fn_config)))
        found = []
        network.train()
        for datum in request.data:
            tokens = np.frombuffer(datum.model_input[0].encoded_text.tokens, dtype=np.int32).copy()
            inputs = {name: _tensor(value) for name, value in datum.loss_fn_inputs.items()}
            logits = network(input_ids=torch.tensor(tokens).long().unsqueeze(0)).logits[0]
            logprobs = torch.log_softmax(logits, -1).gather(-1, inputs["target_tokens"].unsqueeze(-1)).squeeze(-1)
            _loss(request, logprobs, inputs).backward()
            found.append(logprobs.detach().numpy())
        return _output(found)

    def _optim_step(self, given: dict[str, Any], body: bytes) -> dict[str, Any]:
        network, optimizer = self._trained[given["model_id"]]
        adam = given["adam_params"]
        self.adam.append(adam)
        for group in optimizer.param_groups:
            group |= {"lr": adam["learning_rate"], "betas": (adam["beta1"], adam["beta2"]), "eps": adam["eps"],
                      "weight_decay": adam["weight_decay"]}  # fmt: skip
        torch.nn.utils.clip_grad_norm_(network.parameters(), adam["grad_clip_norm"])
        optimizer.step()
        optimizer.zero_grad()
        return {"metrics": {}}

    def _asample(self, given: dict[str, Any], body: bytes) -> bytes:
        network = self._kept[given["sampling_session_id"]][0]
        prompt, asked = given["prompt"]["chunks"][0]["tokens"], given["sampling_params"]
        drawing = Drawing(asked["temperature"], asked["max_tokens"])
        drawn = draw(network, [prompt] * given["num_samples"], drawing, asked["stop"], asked["seed"])
        response = wire.SampleResponse()
        for one in drawn:
            response.sequences.add(
                tokens=np.array(one.tokens, dtype=np.int32).tobytes(),
                logprobs=np.array(one.logprobs, dtype=np.float32).tobytes(),
                stop_reason=wire.STOP_REASON_LENGTH if one.truncated else wire.STOP_REASON_STOP,
            )
        return response.SerializeToString()

    def _save_weights(self, given: dict[str, Any], body: bytes) -> dict[str, Any]:
        path = f"tinker://run/weights/{given['path']}"
        self._kept[path] = copy.deepcopy(self._trained[given["model_id"]])
        return {"path": path}

    def _save_weights_for_sampler(self, given: dict[str, Any], body: bytes) -> dict[str, Any]:
        session = f"sampler-{given['sampling_session_seq_id']}"
        self._kept[session] = copy.deepcopy(self._trained[given["model_id"]])
        return {"sampling_session_id": session}

    def _save_weights_external(self, given: dict[str, Any], body: bytes) -> dict[str, Any]:
        self._files["x"] = adapter_files(self._trained[given["model_id"]][0])
        return {"path": f"tinker://run/external_weights/{given['path']}"}

    def _load_weights(self, given: dict[str, Any], body: bytes) -> dict[str, Any]:
        network, optimizer = copy.deepcopy(self._kept[given["path"]])
        model_id = self._add(given, network)
        if given["optimizer"]:
            self._trained[model_id][1].load_state_dict(optimizer.state_dict())
        return {"path": given["path"], "model_id": model_id}


def _tensor(value: Any) -> torch.Tensor:
    dtype = np.float32 if value.dtype == wire.DTYPE_FLOAT32 else np.int64
    return torch.tensor(np.frombuffer(value.dense, dtype=dtype).copy())


def _loss(request: Any, logprobs: torch.Tensor, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    if request.loss_fn == "cross_entropy":
        return -(logprobs * inputs["weights"]).sum()
    config = request.loss_fn_config
    ratio = torch.exp(logprobs - inputs["logprobs"])
    clipped = ratio.clamp(config["clip_low_threshold"], config["clip_high_threshold"])
    return -torch.minimum(ratio * inputs["advantages"], clipped * inputs["advantages"]).sum()


def _output(found: list[Any]) -> bytes:
    response = wire.ForwardBackwardOutput(loss_fn_output_type=_LOGPROBS)
    record = response.loss_fn_outputs.add(type_tag=_LOGPROBS, num_datums=len(found))
    tensor = record.fields["logprobs"]
    tensor.dtype = wire.DTYPE_FLOAT32
    tensor.data = np.concatenate(found).astype(np.float32).tobytes()
    tensor.offsets = np.cumsum([0, *(4 * len(one) for one in found)]).astype(np.int64).tobytes()
    return response.SerializeToString()


@contextmanager
def running(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The service with a model of its own, where the SDK looks for it."""
    service = Service(tiny.make_model(folder / "model"))
    server = _serving(service)
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.setenv("TINKER_BASE_URL", service.url)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    yield service
    server.shutdown()
    server.server_close()


def _serving(service: Service) -> ThreadingHTTPServer:
    """A server of the service on a free port, started."""

    class Requests(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Nothing: tests read what they asked for."""

        def do_POST(self) -> None:
            self._do(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        def do_GET(self) -> None:
            self._do(b"")

        def _do(self, body: bytes) -> None:
            path = self.path.partition("?")[0]
            status, message = service.fails.get(path.rpartition("/api/v1/")[2], (0, ""))
            if self.headers.get("X-API-Key") != KEY and not path.startswith("/files/"):
                status, message = 401, "no such key"
            try:
                answer = {"detail": message} if status else service.answer(path, body)
            # The SDK would try again for minutes where a connection just ended.
            except Exception as error:
                status, answer = 422, {"detail": repr(error)}
            kind = "application/json" if isinstance(answer, dict) else "application/x-protobuf"
            data = json.dumps(answer).encode() if isinstance(answer, dict) else answer
            self.send_response(status or 200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    service.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
