// One event stream for all tabs: election, sharing, the death of a leader, tabs without Web Locks.
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { SharedStream, STALE_MS, type LinkState, type Surroundings } from "../src/live/sharing";
import { BATCH_MS, type Batch } from "../src/live/stream";

/** A browser: its locks, its channels, and the server behind it. */
class FakeBrowser {
    streams: { position: string | null; isClosed: boolean; send: (text: string) => void }[] = [];
    #queue: { run: () => Promise<void>; signal: AbortSignal | undefined }[] = [];
    #isHeld = false;
    #channels = new Set<{ onmessage: ((event: MessageEvent) => void) | null }>();

    locks = {
        request: (_: string, options: { signal?: AbortSignal }, run: () => Promise<void>) => {
            this.#queue.push({ run, signal: options.signal });
            void this.#next();
            return Promise.resolve();
        },
    } as unknown as LockManager;

    async #next(): Promise<void> {
        if (this.#isHeld) return;
        const next = this.#queue.shift();
        if (!next) return;
        if (next.signal?.aborted) return this.#next();
        this.#isHeld = true;
        await next.run();
        this.#isHeld = false;
        void this.#next();
    }

    tab(hasLocks = true) {
        let visible: (() => void)[] = [];
        const state = { isVisible: true };
        const batches: Batch[] = [];
        const links: LinkState[] = [];
        const surroundings: Surroundings = {
            fetch: (async (_: string, init: RequestInit) => {
                let feed!: ReadableStreamDefaultController<Uint8Array>;
                const body = new ReadableStream<Uint8Array>({ start: (one) => void (feed = one) });
                const stream = {
                    position: new Headers(init.headers).get("last-event-id"),
                    isClosed: false,
                    send: (text: string) => feed.enqueue(new TextEncoder().encode(text)),
                };
                init.signal?.addEventListener("abort", () => (stream.isClosed = true));
                this.streams.push(stream);
                return new Response(body);
            }) as unknown as typeof fetch,
            locks: hasLocks ? this.locks : undefined,
            channel: () => {
                const own: { onmessage: ((event: MessageEvent) => void) | null } = {
                    onmessage: null,
                };
                this.#channels.add(own);
                return Object.assign(own, {
                    postMessage: (data: unknown) => {
                        for (const other of this.#channels) {
                            if (other !== own) other.onmessage?.({ data } as MessageEvent);
                        }
                    },
                    close: () => void this.#channels.delete(own),
                }) as unknown as BroadcastChannel;
            },
            now: () => Date.now(),
            isVisible: () => state.isVisible,
            onVisible: (listener) => {
                visible.push(listener);
                return () => (visible = visible.filter((one) => one !== listener));
            },
        };
        const stream = new SharedStream(
            surroundings,
            "/api/v1/events",
            (batch) => batches.push(batch),
            (link) => links.push(link),
        );
        stream.start();
        const show = (isVisible: boolean) => {
            state.isVisible = isVisible;
            for (const listener of visible) listener();
        };
        return { stream, batches, links, show };
    }

    get open() {
        return this.streams.filter((stream) => !stream.isClosed);
    }
}

const event = (id: number) =>
    `id: ${id}\nevent: agent\ndata: {"environment":"e","kind":"agent","subject":"a${id}","at":""}\n\n`;
const seen = (tab: { batches: Batch[] }) =>
    tab.batches.flatMap((batch) => batch.events.map((one) => one.subject));
const settle = (milliseconds = 0) => vi.advanceTimersByTimeAsync(milliseconds);
let browser: FakeBrowser;
beforeEach(() => {
    vi.useFakeTimers();
    browser = new FakeBrowser();
});
afterEach(() => vi.useRealTimers());

describe("tabs of one browser", () => {
    it("hold one stream together, and all see its events", async () => {
        const tabs = Array.from({ length: 10 }, () => browser.tab());
        await settle(BATCH_MS);
        expect(browser.open).toHaveLength(1);
        browser.open[0]?.send(event(5));
        await settle(BATCH_MS);
        for (const tab of tabs) expect(seen(tab)).toEqual(["a5"]);
        for (const tab of tabs) expect(tab.links.at(-1)?.state).toBe("open");
    });

    it("lose no event when the leader closes", async () => {
        const [first, second] = [browser.tab(), browser.tab()];
        await settle(BATCH_MS);
        browser.open[0]?.send(event(5));
        await settle(BATCH_MS);
        // The leader dies with an event that it has not shared.
        browser.open[0]?.send(event(6));
        await settle(BATCH_MS / 2);
        first.stream.stop();
        await settle(BATCH_MS);
        expect(browser.open).toHaveLength(1);
        expect(second.stream.leads).toBe(true);
        const [position] = browser.open.map((stream) => stream.position);
        // Either it was shared at the end, or the new stream repeats it.
        expect(position === "5" || seen(second).includes("a6")).toBe(true);
    });

    it("start anew if the new leader knows no position", async () => {
        const [first, second] = [browser.tab(), browser.tab()];
        await settle();
        first.stream.stop();
        await settle(BATCH_MS);
        expect(second.batches.at(-1)?.reset).toBe(true);
    });

    it("reconnect when a tab becomes visible after a long silence", async () => {
        const tab = browser.tab();
        await settle(BATCH_MS);
        browser.open[0]?.send(": heartbeat\n\n");
        await settle(STALE_MS / 2);
        tab.show(true);
        await settle();
        expect(browser.streams).toHaveLength(1);
        await settle(STALE_MS);
        tab.show(true);
        await settle();
        expect(browser.streams).toHaveLength(2);
        expect(browser.open).toHaveLength(1);
    });

    it("have a stream each without Web Locks, once they are visible", async () => {
        browser.tab(false);
        browser.tab(false);
        await settle();
        expect(browser.open).toHaveLength(2);
    });
});
