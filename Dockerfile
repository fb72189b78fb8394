# syntax=docker/dockerfile:1
# A server for one store:  docker build -t tss .  &&  see compose.yaml
FROM python:3.12-slim-bookworm AS build
WORKDIR /source
RUN python -m venv /opt/tss
# The CPU build of torch is a fifth of the size; for a GPU, build with --build-arg TORCH_INDEX=https://pypi.org/simple
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY constraints.txt ./
RUN /opt/tss/bin/pip install --no-cache-dir --index-url "$TORCH_INDEX" -c constraints.txt torch
COPY pyproject.toml README.md LICENSE ./
COPY tss ./tss
RUN /opt/tss/bin/pip install --no-cache-dir -c constraints.txt ".[serve]"

FROM python:3.12-slim-bookworm
COPY --from=build /opt/tss /opt/tss
RUN useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin tss
USER tss
ENV PATH=/opt/tss/bin:$PATH PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
EXPOSE 8000
VOLUME /store
STOPSIGNAL SIGTERM
# A container's address can be reached from outside it, so the server asks for a token.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s CMD ["python", "-c", \
 "import os, urllib.request as u; t = os.environ.get('TSS_TOKEN') or open('/run/secrets/tss_token').read().strip(); u.urlopen(u.Request('http://127.0.0.1:8000/ready', headers={'Authorization': 'Bearer ' + t}), timeout=4)"]
ENTRYPOINT ["tss", "serve", "/store", "--host", "0.0.0.0", "--port", "8000"]
CMD ["--token-file", "/run/secrets/tss_token"]
