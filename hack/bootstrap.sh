#!/usr/bin/env bash
# Makes the Python environment of the repository in .venv, exactly as locked. Quick when nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=$(sed -n 's/^uv: *\([0-9.]*\).*/\1/p' operator/kvcachepool/compat/pins.yaml)
want="$(sha256sum requirements/dev.lock | cut -d' ' -f1) $UV_VERSION"
if [[ -x .venv/bin/python && -f .venv/.locked && $(<.venv/.locked) == "$want" ]]; then
  exit 0
fi

python3 - <<'PY' || { echo "bootstrap: Python 3.11 or later is needed, found $(python3 --version)" >&2; exit 1; }
import sys
sys.exit(sys.version_info < (3, 11))
PY
if ! python3 -m venv .venv; then
  echo "bootstrap: the venv module is missing; on Debian: apt-get install python3-venv" >&2
  exit 1
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
.venv/bin/uv pip sync --quiet --python .venv/bin/python requirements/dev.lock
# The repository runs from its sources: operator/ is a source root.
printf '%s\n' "$PWD/operator" > "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/kvcachepool-source.pth"
echo "$want" > .venv/.locked
