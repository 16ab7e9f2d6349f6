"""The HTTP front of the models, with a limit of our own on how long an answer may take.

Imports vLLM, through ray.serve.llm: named in a config, and imported where that is built or served.
"""

from __future__ import annotations

import os
from typing import Any

from ray.llm._internal.serve.core.ingress import ingress

LIMIT_VARIABLE = "RAY_SERVE_LLM_ROUTER_HTTP_TIMEOUT"
"""Ray's own variable for the limit, in seconds; where somebody set it, it holds."""


class Front(ingress.OpenAiIngress):
    """One replica of it."""

    def __init__(self, *args: Any, answer_limit_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A whole answer that takes longer than this constant ends with status 408: 600 s without the variable. `build`
        # cannot set that for the front: ray_actor_options of a deployment file replace those of the code, with their
        # environment. A replica is a process of its own.
        if LIMIT_VARIABLE not in os.environ:
            ingress.DEFAULT_LLM_ROUTER_HTTP_TIMEOUT = answer_limit_s
