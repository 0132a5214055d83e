# One image for every part of Aliquot. Base images are build arguments, so a cluster can bring its own;
# both need the same Python at the same path.
ARG BUILD_IMAGE=python:3.11-slim-bookworm
ARG RUN_IMAGE=python:3.11-slim-bookworm

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
# The compiler comes as a wheel and builds against glibc 2.17: what is preloaded into containers must
# not need the C library of this image.
COPY requirements.lock ./
RUN python3 -m venv /opt/build && /opt/build/bin/pip install -q --require-hashes -r requirements.lock
COPY . .
RUN ALIQUOT_CC="/opt/build/bin/python -m ziglang cc -target $(uname -m)-linux-gnu.2.17" \
      /opt/build/bin/python -m build -q --wheel --no-isolation -o /wheels
# Only what the product itself needs, at the versions of the lock, byte-compiled.
RUN sed -n 's/^\([a-z0-9._-]*==[^ ;]*\).*/\1/p' requirements.lock > /pins \
    && python3 -m venv /opt/aliquot \
    && /opt/aliquot/bin/pip install -q --no-cache-dir --compile -c /pins /wheels/*.whl \
    && /opt/aliquot/bin/pip uninstall -qy pip

FROM ${RUN_IMAGE}
COPY --from=build /opt/aliquot /opt/aliquot
ENV PATH=/opt/aliquot/bin:$PATH
USER 65534
ENTRYPOINT ["aliquot"]
CMD ["--help"]
