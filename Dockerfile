# One image for every part of Aliquot. Base images are build arguments, so a cluster can bring its own;
# both need the same Python (3.11 or later) at the same path.
ARG BUILD_IMAGE=python:3.11-slim-bookworm
ARG RUN_IMAGE=python:3.11-slim-bookworm

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
# The compiler comes as a wheel and builds against glibc 2.17: what is preloaded into containers must
# not need the C library of this image.
COPY requirements.lock deploy/image/lock_part.py ./
RUN python3 lock_part.py requirements.lock build setuptools wheel cffi ziglang > build.lock \
    && python3 -m venv /opt/build \
    && /opt/build/bin/pip install -q --no-cache-dir --no-deps --require-hashes -r build.lock
# Only what the product itself needs, byte-compiled; not even pip.
RUN python3 lock_part.py requirements.lock aliquot > run.lock \
    && python3 -m venv --without-pip /opt/aliquot \
    && /opt/build/bin/pip --python /opt/aliquot/bin/python3 install -q --no-cache-dir --no-deps \
         --compile --require-hashes -r run.lock \
    && find /opt/aliquot -depth -type d -name tests -path '*/numpy/*' -exec rm -r {} +
COPY pyproject.toml setup.py nativebuild.py LICENSE README.md ./
COPY shim shim
COPY simgpu simgpu
COPY simcluster simcluster
COPY aliquot aliquot
COPY deviceplugin deviceplugin
COPY scheduler_ext scheduler_ext
# Debian's own Python has its configuration in a folder that a compiler for another glibc does not search.
RUN --mount=type=cache,target=/var/cache/zig \
    export ZIG_GLOBAL_CACHE_DIR=/var/cache/zig \
    && arch=$(uname -m)-linux-gnu && mkdir /opt/include && ln -s /usr/include/$arch /opt/include/$arch \
    && ALIQUOT_CC="/opt/build/bin/python -m ziglang cc -target $arch.2.17 -idirafter /opt/include" \
      /opt/build/bin/python -m build --wheel --no-isolation -o /wheels > /dev/null \
    && /opt/build/bin/pip --python /opt/aliquot/bin/python3 install -q --no-cache-dir --no-deps \
         --compile /wheels/*.whl

FROM ${RUN_IMAGE}
COPY --from=build /opt/aliquot /opt/aliquot
ENV PATH=/opt/aliquot/bin:$PATH PYTHONUNBUFFERED=1
# The node agent's manifest asks for more, and says why.
USER 65534
ENTRYPOINT ["aliquot"]
CMD ["--help"]
