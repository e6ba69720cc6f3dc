#!/bin/sh
# What every node needs: the names of all nodes, for people and for scripts.
set -eu
case $1 in
install)
    command -v python3 >/dev/null || { echo "python3 is missing on $ORRERY_NODE" >&2; exit 1; }
    ;;
configure)
    printf '%s\n' "${ORRERY_CONFIG_HOSTS:-}" | tr ' ' '\n' >"$ORRERY_NODE_DIR/nodes"
    ;;
remove) rm -f "$ORRERY_NODE_DIR/nodes" ;;
*) echo "base.sh: unknown action $1" >&2; exit 64 ;;
esac
