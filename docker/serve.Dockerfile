# The head and the nodes that serve models: Ray, vLLM and kb_ray. The driver of a run works here too.
#   docker build -f docker/serve.Dockerfile -t YOUR-REGISTRY/kb-ray-serve:0.1.0 .     Never built: docs/cluster.md
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
# g++: torch and vLLM compile kernels where they run. libnuma1: vLLM's workers. openssh-client: the head sets up the
# nodes that it adds. rsync: `ray up` copies files with it. wget: KubeRay asks with it whether a node is well.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ libc6-dev libnuma1 openssh-client rsync wget \
 && rm -rf /var/lib/apt/lists/*

COPY requirements/images/serve.txt requirements/images/nvidia.txt /requirements/
# The second step brings the CUDA of torch's build, and with the compiler that vLLM asks for, of the same release.
RUN pip install --no-cache-dir --no-deps --require-hashes -r /requirements/serve.txt \
 && pip install --no-cache-dir -r /requirements/nvidia.txt 'cuda-toolkit[cccl,nvcc]==13.0.3' vllm==0.29.0
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
    PYTHONUNBUFFERED=1 \
    CUDA_HOME=/usr/local/lib/python3.12/site-packages/nvidia/cu13
WORKDIR /home/ray
CMD ["bash"]
