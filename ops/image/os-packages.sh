#!/bin/sh
# Installs packages of the operating system that are not there yet; where all are, nothing is downloaded.
# APT_SNAPSHOT pins what is installed to a moment (snapshot.ubuntu.com's form: 20260901T000000Z).
set -eu

missing=
for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -q '^installed$' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

touch /marker
sleep 0.1 # a time stamp is a tick of the kernel's, of some milliseconds
snapshot=${APT_SNAPSHOT:+--snapshot=$APT_SNAPSHOT}
ca=/run/secrets/ca
[ -r "$ca" ] && echo "Acquire::https::CaInfo \"$ca\";" >/etc/apt/apt.conf.d/99-build-ca
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # package names, and a flag that may be absent
apt-get $snapshot -q update && apt-get $snapshot -q install -y --no-install-recommends $missing
# Lists, logs and ldconfig's cache of inodes differ from run to run.
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old \
    /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /etc/apt/apt.conf.d/99-build-ca
find / -xdev -cnewer /marker -print0 | xargs -0 -r touch --no-dereference --date="@${SOURCE_DATE_EPOCH:?}"
rm /marker
touch --date="@${SOURCE_DATE_EPOCH:?}" /
