# One image for every part of Aliquot. Base images are build arguments, so a cluster can bring its own.
ARG BUILD_IMAGE=python:3.11-slim-bookworm
ARG RUN_IMAGE=python:3.11-slim-bookworm

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
# The release compiler comes as a wheel: no compiler of the base image is used.
COPY requirements.lock ./
RUN python3 -m venv /opt/build && /opt/build/bin/pip install -q --require-hashes -r requirements.lock
COPY . .
RUN ALIQUOT_CC="/opt/build/bin/python -m ziglang cc -target $(uname -m)-linux-gnu.2.17" \
      /opt/build/bin/python -m build --wheel --no-isolation -o /wheels

FROM ${RUN_IMAGE}
COPY --from=build /wheels /wheels
RUN python3 -m pip install --no-cache-dir /wheels/*.whl && rm -rf /wheels
USER 65534
ENTRYPOINT ["aliquot"]
CMD ["--help"]
