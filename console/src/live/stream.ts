// One connection to the event stream: reconnects with backoff, resumes at the last position,
// merges events into batches.
import type { ChangeEvent } from "./kinds";
import { EventParser } from "./sse";

/** A batch of merged events. `reset`: events were missed, so everything is stale. */
export type Batch = { reset: boolean; events: ChangeEvent[]; position: string | null };

export type StreamState = "connecting" | "open" | "waiting" | "unauthenticated" | "stopped";

export type StreamOptions = {
    url: string;
    fetch: typeof fetch;
    /** Position after which the stream continues. */
    position: string | null;
    onBatch: (batch: Batch) => void;
    onState: (state: StreamState) => void;
    /** Called for every received byte, heartbeats included. */
    onByte?: () => void;
    random?: () => number;
};

/** Time between batches. */
export const BATCH_MS = 100;
/** The server sends a heartbeat every 15 s. */
export const SILENCE_MS = 40_000;
const BACKOFF_MIN_MS = 500;
const BACKOFF_MAX_MS = 30_000;

/** Pause before attempt `failures`: doubles up to 30 s, with jitter of 50 to 100 %. */
export function backoff(failures: number, random: () => number): number {
    const full = Math.min(BACKOFF_MIN_MS * 2 ** Math.max(0, failures - 1), BACKOFF_MAX_MS);
    return full * (0.5 + random() / 2);
}

export class EventStream {
    readonly #options: StreamOptions;
    #position: string | null;
    #failures = 0;
    #abort: AbortController | null = null;
    #retry: ReturnType<typeof setTimeout> | undefined;
    #silence: ReturnType<typeof setTimeout> | undefined;
    #flush: ReturnType<typeof setTimeout> | undefined;
    #merged = new Map<string, ChangeEvent>();
    #reset = false;
    #stopped = false;

    constructor(options: StreamOptions) {
        this.#options = options;
        this.#position = options.position;
    }

    get position() {
        return this.#position;
    }

    start() {
        this.#stopped = false;
        void this.#connect();
    }

    stop() {
        this.#stopped = true;
        this.#close();
        clearTimeout(this.#retry);
        this.#deliver();
        this.#options.onState("stopped");
    }

    /** Connects at once, whatever the backoff. */
    reconnect() {
        if (this.#stopped) return;
        clearTimeout(this.#retry);
        this.#close();
        void this.#connect();
    }

    #close() {
        clearTimeout(this.#silence);
        this.#abort?.abort();
        this.#abort = null;
    }

    async #connect() {
        const abort = new AbortController();
        this.#abort = abort;
        this.#options.onState("connecting");
        const isCurrent = () => this.#abort === abort;
        const headers: Record<string, string> = {
            Accept: "text/event-stream",
            "X-Orrery-Client": "console",
        };
        if (this.#position) headers["Last-Event-ID"] = this.#position;
        try {
            this.#watch();
            const response = await this.#options.fetch(this.#options.url, {
                headers,
                signal: abort.signal,
                credentials: "same-origin",
                cache: "no-store",
            });
            if (!isCurrent()) return;
            if (response.status === 401) {
                this.#close();
                this.#options.onState("unauthenticated");
                return;
            }
            if (!response.ok || !response.body) throw new Error(`status ${response.status}`);
            this.#options.onState("open");
            // Without a position, what changed before this moment was not announced.
            if (!this.#position) this.#receive({ id: null, event: "reset", data: "" });
            const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
            const parser = new EventParser();
            for (;;) {
                const { done, value } = await reader.read();
                if (!isCurrent()) return;
                if (done) break;
                // Only a connection that carries something is a success: a proxy may accept and close.
                this.#failures = 0;
                this.#watch();
                this.#options.onByte?.();
                for (const event of parser.push(value)) this.#receive(event);
            }
        } catch {
            if (!isCurrent()) return;
        }
        this.#close();
        this.#retryLater();
    }

    #retryLater() {
        if (this.#stopped) return;
        this.#failures += 1;
        this.#options.onState("waiting");
        const pause = backoff(this.#failures, this.#options.random ?? Math.random);
        this.#retry = setTimeout(() => void this.#connect(), pause);
    }

    /** Restarts the timer that ends a silent connection. */
    #watch() {
        clearTimeout(this.#silence);
        this.#silence = setTimeout(() => {
            this.#close();
            this.#retryLater();
        }, SILENCE_MS);
    }

    #receive({ id, event, data }: { id: string | null; event: string; data: string }) {
        if (id !== null) this.#position = id;
        if (event === "reset") {
            this.#reset = true;
            this.#merged.clear();
        } else {
            let change: ChangeEvent;
            try {
                change = JSON.parse(data) as ChangeEvent;
            } catch {
                return;
            }
            this.#merged.set(
                `${change.environment ?? ""} ${change.kind} ${change.subject}`,
                change,
            );
        }
        this.#flush ??= setTimeout(() => this.#deliver(), BATCH_MS);
    }

    #deliver() {
        clearTimeout(this.#flush);
        this.#flush = undefined;
        if (!this.#reset && this.#merged.size === 0) return;
        const events = [...this.#merged.values()];
        const reset = this.#reset;
        this.#merged.clear();
        this.#reset = false;
        this.#options.onBatch({ reset, events, position: this.#position });
    }
}
