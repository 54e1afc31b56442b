#!/bin/sh
# settle.sh FOLDER...: gives all that is in the folders one fixed time, the build's SOURCE_DATE_EPOCH, so that a layer does
# not depend on when it was made.
set -eu

find "$@" -xdev -print0 | xargs -0 -r touch --no-dereference --date="@${SOURCE_DATE_EPOCH:?}"
