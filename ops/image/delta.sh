#!/bin/sh
# delta.sh MARKER FOLDER OUT: copies what changed under FOLDER since MARKER was made to OUT/FOLDER, with bytecode for it.
set -eu

marker=$1
folder=$2
out=$3
find "$folder" -depth -name '*.py' -cnewer "$marker" -print0 |
    PYTHONHASHSEED=0 xargs -0 -r "$folder/bin/python" -m compileall -q --invalidation-mode unchecked-hash
mkdir -p "$out"
find "$folder" \( -type f -o -type l \) -cnewer "$marker" -print0 | sort -z |
    tar --create --null --files-from=- --absolute-names | tar --extract --directory="$out"
