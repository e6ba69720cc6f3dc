# Reads the attributes of a path, and follows links of any user.
if line=$(ls -ldLn "$path" 2>&1); then
    case $line in
    l*) absent ;;
    esac
    reply attributes
    printf '%s\n' "$line"
else
    case $line in
    *'No such file'* | *'Not a directory'*) absent ;;
    esac
    printf '%s\n' "$line" >&2
    exit 1
fi
