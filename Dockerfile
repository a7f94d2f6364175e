# Built by `make image` from the wheel in dist/. The first stage makes /opt/frazil, a virtual environment with the wheel and the
# versions of requirements.lock; the second one has that and Python, and neither pip's cache nor the wheel.
FROM python:3.11-slim AS build
ARG EXTRAS=mongodb
WORKDIR /build
RUN python -m venv /opt/tools && /opt/tools/bin/pip install --quiet --disable-pip-version-check uv==0.13.7
COPY requirements.lock dist/*.whl ./
RUN python -m venv --without-pip /opt/frazil
RUN /opt/tools/bin/uv pip install --python /opt/frazil/bin/python --constraints requirements.lock "$(ls ./*.whl)[$EXTRAS]"

FROM python:3.11-slim
COPY --from=build /opt/frazil /opt/frazil
RUN useradd --uid 10001 --create-home frazil
ENV PATH=/opt/frazil/bin:$PATH
USER 10001
WORKDIR /home/frazil
ENTRYPOINT ["frazil"]
CMD ["--help"]
