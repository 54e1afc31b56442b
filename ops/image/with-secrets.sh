#!/bin/sh
# Runs a command with the build's optional secrets: ca, certificates to trust beside the image's; uv, a uv.toml.
set -eu

if [ -r /run/secrets/ca ]; then
    export SSL_CERT_FILE=/run/secrets/ca PIP_CERT=/run/secrets/ca REQUESTS_CA_BUNDLE=/run/secrets/ca
fi
if [ -r /run/secrets/uv ]; then
    export UV_CONFIG_FILE=/run/secrets/uv
fi
exec "$@"
