#!/usr/bin/env bash
# Installs the Debian packages that the embedded cluster and the image builds
# need, and only those that are missing. Safe to run again at any time.
set -euo pipefail

# runc, CNI plugins and the network tools run pods; buildah and mmdebstrap
# build images without a registry; the lib* packages are what a Mooncake wheel
# links against when tests run it outside a container.
PACKAGES=(
  ca-certificates iproute2 iptables ipset conntrack ethtool socat kmod mount procps
  runc containernetworking-plugins
  buildah mmdebstrap uidmap fuse-overlayfs
  libibverbs1 librdmacm1 libnuma1 libcurl4
)

missing=()
for package in "${PACKAGES[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
  [[ $status == ii* ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "debian-packages: all ${#PACKAGES[@]} packages are installed"
  exit 0
fi
if ((EUID != 0)); then
  echo "debian-packages: must be root to install: ${missing[*]}" >&2
  echo "debian-packages: run it again as: sudo $0" >&2
  exit 1
fi

# A machine may list third-party sources that cannot be reached, and one such
# source fails the whole update: read only Debian's own.
apt_options=(-q -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
  if [[ -s $file ]] && grep -q 'debian' "$file"; then
    apt_options+=(-o "Dir::Etc::sourcelist=$file" -o Dir::Etc::sourceparts=-)
    break
  fi
done

export DEBIAN_FRONTEND=noninteractive
echo "debian-packages: apt-get update"
apt-get "${apt_options[@]}" update
echo "debian-packages: installing ${missing[*]}"
apt-get "${apt_options[@]}" install --no-install-recommends "${missing[@]}"
