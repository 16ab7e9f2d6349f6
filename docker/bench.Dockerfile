# Bench nodes: Ray, kb_ray's verifier, and a torch and triton of its own. Strangers' code runs in it: it has no
# credentials, no cloud tools, no sudo, and a user without rights.
#   docker build -f docker/bench.Dockerfile -t YOUR-REGISTRY/kb-ray-bench:0.1.0 .     Never built: docs/cluster.md
ARG PYTHON_IMAGE=python:3.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS wheel
COPY requirements/images/build.txt /requirements/
RUN pip install --no-cache-dir --no-deps --require-hashes -r /requirements/build.txt
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY kb_ray kb_ray
COPY deployments deployments
# Isolated, it would fetch the newest build backend.
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --check-build-dependencies --wheel-dir /wheel .

FROM ${PYTHON_IMAGE}
# gcc: triton compiles a launcher for each kernel. libseccomp2: the sandbox. rsync: `ray up` copies files with it.
# wget: KubeRay asks with it whether a node is well. Debian keeps no older versions, so these have no pins.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev libseccomp2 rsync wget \
 && rm -rf /var/lib/apt/lists/*

COPY requirements/images/bench.txt requirements/images/nvidia.txt /requirements/
RUN pip install --no-cache-dir --no-deps --require-hashes -r /requirements/bench.txt \
 && pip install --no-cache-dir -r /requirements/nvidia.txt torch==2.13.0
COPY --from=wheel /wheel /wheel
RUN pip install --no-cache-dir --no-deps /wheel/*.whl \
 && pip check

# The uid of a host's first user, so that what `ray up` mounts (the cluster's token) can be read.
RUN useradd --create-home --uid 1000 --shell /bin/bash ray \
 && install -d -o ray -m 700 /home/ray/.ray
USER 1000:1000
# NVIDIA's container runtime gives GPUs only to a container with the first of these: `ray up` names the runtime, but no
# GPU. Whoever gives out single GPUs, as Kubernetes does, sets it over this; no other runtime reads it.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV HOME=/home/ray \
    PYTHONUNBUFFERED=1
WORKDIR /home/ray
CMD ["bash"]
