# Sets `found` to the full path of `program`, or to nothing. Like the kernel's and unlike a shell's
# search, builtins do not count. Relative directories are skipped.
found=
case $program in
/*) [ -f "$program" ] && [ -x "$program" ] && found=$program ;;
*/*) ;;
*)
    set -f
    IFS=:
    for place in $search_path; do
        case $place in
        /*)
            if [ -f "${place%/}/$program" ] && [ -x "${place%/}/$program" ]; then
                found=${place%/}/$program
                break
            fi
            ;;
        esac
    done
    unset IFS
    set +f
    ;;
esac
