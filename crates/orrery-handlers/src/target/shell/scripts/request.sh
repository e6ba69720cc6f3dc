# Sends a request with the rest of the input as its body; the options are not visible to others.
exec 4<&0
reply response
printf '%s' "$options" | curl --silent --show-error --include --config -
