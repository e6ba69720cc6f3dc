// Parser of server-sent events, fed with text in any pieces.

export type ServerEvent = { id: string | null; event: string; data: string };

export class EventParser {
    #rest = "";
    #id: string | null = null;
    #event = "";
    #data: string[] = [];

    /** Adds received text. Returns the events that it completes. */
    push(text: string): ServerEvent[] {
        const events: ServerEvent[] = [];
        const lines = (this.#rest + text).split(/\r\n|\n|\r/);
        this.#rest = lines.pop() ?? "";
        for (const line of lines) {
            if (line === "") {
                if (this.#data.length > 0 || this.#event) {
                    events.push({
                        id: this.#id,
                        event: this.#event || "message",
                        data: this.#data.join("\n"),
                    });
                }
                this.#event = "";
                this.#data = [];
                continue;
            }
            if (line.startsWith(":")) continue;
            const colon = line.indexOf(":");
            const field = colon < 0 ? line : line.slice(0, colon);
            const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
            if (field === "id") this.#id = value;
            else if (field === "event") this.#event = value;
            else if (field === "data") this.#data.push(value);
        }
        return events;
    }
}
