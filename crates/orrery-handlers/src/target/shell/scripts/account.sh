# Prints the line of a user or group, as the `database` (passwd or group) has it; or all lines of
# the file where there is no other source.
reply lines
getent "$database" "$key" 2>/dev/null || cat "/etc/$database"
