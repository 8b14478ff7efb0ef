# Sourced by the scripts beside it: goes to the repository root and gives them $python, an
# interpreter with the project installed, and its tools on the PATH. Variables a user may set:
#   PYTHON                the interpreter to make .venv from (default python3)
#   PTXLAB_NO_INSTALL=1   make and install nothing: use $PYTHON as it is, with what it has

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

base="${PYTHON:-python3}"

# supported INTERPRETER: whether it runs, and is a version pyproject.toml allows.
supported() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 16))' 2>/dev/null
}

# use_environment EXTRA: set $python to an interpreter with the project and this extra installed
# ("" for none). Quick when nothing has changed since the last time.
use_environment() {
    if [[ "${PTXLAB_NO_INSTALL:-}" == 1 ]]; then
        require_supported "$base"
        python="$base"
        export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
        return
    fi
    if ! supported .venv/bin/python; then
        require_supported "$base"
        echo "making .venv with $("$base" --version)" >&2
        "$base" -m venv --clear .venv || {
            echo "error: $base cannot make a virtual environment (on Debian: apt install python3-venv)" >&2
            exit 3
        }
    fi
    python="$PWD/.venv/bin/python"
    export PATH="$PWD/.venv/bin:$PATH"
    local extra="$1" stamp=".venv/installed-${1:-plain}"
    if ! cmp -s pyproject.toml "$stamp"; then
        echo "installing ptxlab${extra:+[$extra]} into .venv" >&2
        "$python" -m pip install --quiet --disable-pip-version-check --editable ".${extra:+[$extra]}" >&2
        cp pyproject.toml "$stamp"
    fi
}

require_supported() {
    local found
    if ! supported "$1"; then
        found="$("$1" --version 2>/dev/null | head -n 1)" || found="no Python"
        echo "error: ptxlab needs Python 3.11 to 3.15, and $1 is ${found:-no Python}" \
            "(set PYTHON to another one)" >&2
        exit 3
    fi
}
