# Makes changed files durable; all of them where single ones cannot be synced.
if [ "$#" -gt 0 ]; then
    sync "$@" 2>/dev/null || sync || exit 1
else
    sync || exit 1
fi
reply done
