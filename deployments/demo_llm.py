"""`make demo-llm`: serves SmolLM2-135M with real vLLM on this machine's CPU and runs a few tasks against it.

Shows every part at work with a real model in the loop; a model of this size writes no correct Triton kernel,
so that the run ends with failures that it was told about. Needs the model folder (`kb_ray.model.smollm2`).
"""

from __future__ import annotations

import subprocess
import sys

from kb_ray import cluster, serve
from kb_ray.errors import KbRayError

MODEL = "smollm2-135m-instruct"
RUN = [
    *("--tasks", "builtin:3", "--model", MODEL, "--prompt", "terse", "--max-tokens", "256"),
    *("--multi-turn", "--max-turns", "2", "--temperature", "0.7", "--output", "demo_llm_traces"),
]


def main() -> int:
    """Serve, run, stop. The exit code is the run's; 1 where the model cannot be served."""
    try:
        found = cluster.connect("demo-llm")
        print("starting vLLM (a minute or two) ...", flush=True)
        url = serve.deploy(serve.read(serve.find("smollm2_cpu")))
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"serving {MODEL} at {url}", flush=True)
    command = [sys.executable, "-m", "kb_ray.generate", *RUN, "--vllm-url", url, "--ray-address", found.address]
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        serve.stop()
        cluster.disconnect()


if __name__ == "__main__":
    sys.exit(main())
