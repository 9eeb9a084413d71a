#!/usr/bin/env bash
# Regenerates everything that is made from the code and fails when that changes a file.
set -euo pipefail
cd "$(dirname "$0")/.."
before=$(git status --porcelain --untracked-files=all | sha256sum; git diff | sha256sum)
.venv/bin/python -m hack.generate
after=$(git status --porcelain --untracked-files=all | sha256sum; git diff | sha256sum)
if [[ $before != "$after" ]]; then
  echo "generated files were out of date; commit what changed:" >&2
  git status --short >&2
  exit 1
fi
if [[ -n ${CI:-} && -n $(git status --porcelain) ]]; then
  echo "the tree is dirty:" >&2
  git status --short >&2
  exit 1
fi
