// Commands equivalent to what a page shows, for a terminal.

/** Quotes a word for a POSIX shell, if it needs quotes. */
export function shellQuote(word: string): string {
    return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

/** An `orrery` command in an environment. */
export function orrery(
    environment: string | null,
    ...words: (string | null | undefined)[]
): string {
    const given = words.filter((word): word is string => !!word);
    const place = environment ? ["-e", environment] : [];
    const [verb, ...rest] = given;
    return ["orrery", verb ?? "", ...rest, ...place].map(shellQuote).join(" ");
}

/** A request of the API, with the token in a variable. */
export function curl(origin: string, path: string, method = "GET", body?: unknown): string {
    const parts = ["curl", "-H", '"Authorization: Bearer $ORRERY_TOKEN"'];
    if (method !== "GET") parts.push("-X", method);
    if (body !== undefined) {
        parts.push(
            "-H",
            "'Content-Type: application/json'",
            "-d",
            shellQuote(JSON.stringify(body)),
        );
    }
    parts.push(shellQuote(origin + path));
    return parts.join(" ");
}
