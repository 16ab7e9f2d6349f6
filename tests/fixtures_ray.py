"""One local Ray for all tests of a session that need one.

Knows no test. The cluster has 4 logical CPUs wherever it runs: actors of tests ask for little, and what they
really use is theirs to bound.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from kb_ray import env_vars
from kb_ray.cluster import prepare_environment

CPUS = 4
OBJECT_STORE_BYTES = 200 * 1024**2

# Before anything imports Ray: a client that was set up without a token loops on refusals later.
os.environ.setdefault(env_vars.RAY_AUTH_MODE, "token")
prepare_environment()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """A connected local cluster with token authentication; its address (host:port). Ended with the session.

    Always a new one: a cluster that happens to run on this machine is not touched.
    """
    import ray

    if os.environ[env_vars.RAY_AUTH_MODE] != "token":
        pytest.fail(f"tests of Ray need {env_vars.RAY_AUTH_MODE}=token: unset it")
    context = ray.init(
        address="local",
        num_cpus=CPUS,
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    yield str(context.address_info["gcs_address"])
    ray.shutdown()
