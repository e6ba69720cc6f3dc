// One event stream per browser: Web Locks elects a leader tab, a BroadcastChannel shares its events.
// Without Web Locks (plain HTTP to another machine), each visible tab has a stream of its own.
import { EventStream, type Batch, type StreamState } from "./stream";

/** State of the connection, as every tab sees it. */
export type LinkState = { state: StreamState; lastByte: number; leads: boolean };

type Message =
    | { kind: "batch"; batch: Batch }
    | { kind: "state"; state: StreamState; lastByte: number }
    | { kind: "hello" };

/** What the environment provides; tests replace it. */
export type Surroundings = {
    fetch: typeof fetch;
    locks: Pick<LockManager, "request"> | undefined;
    channel: (name: string) => Pick<BroadcastChannel, "postMessage" | "close" | "onmessage"> | null;
    now: () => number;
    isVisible: () => boolean;
    onVisible: (listener: () => void) => () => void;
    random?: () => number;
};

/** A tab that becomes visible reconnects if the last byte is older. */
export const STALE_MS = 20_000;
const NAME = "orrery.events";

export class SharedStream {
    readonly #with: Surroundings;
    readonly #url: string;
    readonly #onBatch: (batch: Batch) => void;
    readonly #onLink: (link: LinkState) => void;
    #stream: EventStream | null = null;
    #channel: ReturnType<Surroundings["channel"]> = null;
    #position: string | null = null;
    #link: LinkState = { state: "connecting", lastByte: 0, leads: false };
    #resign: (() => void) | undefined;
    #waiting: AbortController | undefined;
    #unlisten: (() => void) | undefined;
    #lastTold = 0;
    #stopped = true;

    constructor(
        surroundings: Surroundings,
        url: string,
        onBatch: (batch: Batch) => void,
        onLink: (link: LinkState) => void,
    ) {
        this.#with = surroundings;
        this.#url = url;
        this.#onBatch = onBatch;
        this.#onLink = onLink;
    }

    get leads() {
        return this.#link.leads;
    }

    start() {
        if (!this.#stopped) return;
        this.#stopped = false;
        this.#unlisten = this.#with.onVisible(() => this.#becameVisible());
        const { locks } = this.#with;
        if (!locks) {
            if (this.#with.isVisible()) this.#lead();
            return;
        }
        this.#channel = this.#with.channel(NAME);
        if (this.#channel) {
            this.#channel.onmessage = (message: MessageEvent) =>
                this.#hear(message.data as Message);
            this.#channel.postMessage({ kind: "hello" } satisfies Message);
        }
        this.#waiting = new AbortController();
        const until = new Promise<void>((resolve) => (this.#resign = resolve));
        locks
            .request(NAME, { signal: this.#waiting.signal }, async () => {
                if (this.#stopped) return;
                this.#lead();
                await until;
            })
            .catch(() => undefined);
    }

    stop() {
        if (this.#stopped) return;
        this.#stopped = true;
        this.#unlisten?.();
        this.#stream?.stop();
        this.#stream = null;
        this.#resign?.();
        this.#waiting?.abort();
        this.#channel?.close();
        this.#channel = null;
        this.#update({ leads: false });
    }

    /** Connects at once, as after a login. */
    reconnect() {
        this.#stream?.reconnect();
    }

    #update(part: Partial<LinkState>) {
        this.#link = { ...this.#link, ...part };
        this.#onLink(this.#link);
    }

    #lead() {
        this.#update({ leads: true });
        this.#stream = new EventStream({
            url: this.#url,
            fetch: this.#with.fetch,
            position: this.#position,
            ...(this.#with.random ? { random: this.#with.random } : {}),
            onBatch: (batch) => {
                this.#position = batch.position;
                this.#channel?.postMessage({ kind: "batch", batch } satisfies Message);
                this.#onBatch(batch);
            },
            onState: (state) => {
                this.#update({ state });
                this.#tell();
            },
            onByte: () => {
                this.#update({ lastByte: this.#with.now() });
                // Followers need the time of the last byte only roughly.
                if (this.#with.now() - this.#lastTold > 5000) this.#tell();
            },
        });
        this.#stream.start();
    }

    #tell() {
        this.#lastTold = this.#with.now();
        const { state, lastByte } = this.#link;
        this.#channel?.postMessage({ kind: "state", state, lastByte } satisfies Message);
    }

    #hear(message: Message) {
        if (message.kind === "hello") {
            if (this.#link.leads) this.#tell();
        } else if (this.#link.leads) {
            // A former leader's last words: its position is older than this stream's.
        } else if (message.kind === "batch") {
            this.#position = message.batch.position;
            this.#update({ lastByte: this.#with.now() });
            this.#onBatch(message.batch);
        } else {
            this.#update({ state: message.state, lastByte: message.lastByte });
        }
    }

    /** Timers of hidden tabs are slow, and sleeping machines lose connections without notice. */
    #becameVisible() {
        if (this.#stopped || !this.#with.isVisible()) return;
        if (!this.#with.locks && !this.#stream) return this.#lead();
        const isStale = this.#with.now() - this.#link.lastByte > STALE_MS;
        if (isStale && this.#link.state !== "unauthenticated") this.#stream?.reconnect();
    }
}
