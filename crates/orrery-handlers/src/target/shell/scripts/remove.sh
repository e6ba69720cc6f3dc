# Removes a `file`, a directory that is `empty`, or a `tree`, as the caller sets `what`.
enter "$dir" || absent
kind_of "./$name"
[ "$kind" != none ] || absent
case $what,$kind in
file,directory) fail is-a-directory ;;
file,*) rm -f "./$name" || exit 1 ;;
empty,directory) rmdir "./$name" || exit 1 ;;
tree,directory) rm -rf "./$name" || exit 1 ;;
*) fail not-a-directory ;;
esac
reply done
