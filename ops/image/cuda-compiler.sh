#!/bin/sh
# cuda-compiler.sh OUT: copies nvcc, its headers and the libraries it links to OUT, each at its own place; nothing where
# there is no CUDA toolkit.
set -eu

out=$1
mkdir -p "$out"
[ -x /usr/local/cuda/bin/nvcc ] || exit 0
cuda=$(readlink -f /usr/local/cuda)
cd "$cuda"
for part in bin/nvcc bin/nvcc.profile bin/ptxas bin/fatbinary bin/nvlink bin/cudafe++ bin/bin2c bin/crt nvvm include \
    targets/x86_64-linux/include targets/x86_64-linux/lib/libcudadevrt.a targets/x86_64-linux/lib/libcudart_static.a \
    targets/x86_64-linux/lib/libcudart.so targets/x86_64-linux/lib/stubs/libcuda.so; do
    # Nothing may be missing in silence: a kernel would fail to compile in the middle of a run.
    [ -e "$part" ] || { echo "cuda-compiler.sh: $cuda/$part is missing" >&2; exit 1; }
    mkdir -p "$out$cuda/$(dirname "$part")"
    cp -a "$part" "$out$cuda/$part"
done
