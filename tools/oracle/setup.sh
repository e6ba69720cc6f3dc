#!/usr/bin/env bash
# Creates the virtualenv of the reference compiler: setup.sh DIR.
# The versions are those of the recorded outcomes in tests/language.
set -euo pipefail
directory="${1:?usage: setup.sh DIR}"
python="${PYTHON:-python3.13}"
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' || {
    echo "setup.sh: $python is not Python 3.13; set PYTHON to one that is" >&2
    exit 1
}
"$python" -m venv "$directory"
"$directory/bin/pip" install --quiet inmanta-core==20.1.0 inmanta-module-std==8.7.5
"$directory/bin/inmanta" --version
