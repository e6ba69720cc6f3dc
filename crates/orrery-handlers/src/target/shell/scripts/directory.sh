# Creates a directory: private until it has its owner, and not at all if it cannot have it.
enter_parent
here=${PWD%/}
if [ -n "$want_mode" ]; then
    mkdir -m 700 "./$name" || exit 1
else
    mkdir "./$name" || exit 1
fi
(
    cd -P "./$name" && [ "$PWD" = "$here/$name" ] || exit 1
    own . .
) || {
    rmdir "./$name"
    exit 1
}
reply done
