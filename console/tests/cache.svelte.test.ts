// The cache of reads: one request in flight, reloads after events, aborted reads.
import { flushSync } from "svelte";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { applyBatch, query, setVisibility, type Query } from "../src/live/cache.svelte";

type Call = { url: string; answer: (body: unknown) => void; signal: AbortSignal | null };
let calls: Call[];
let number = 0;
const settle = (milliseconds = 0) => vi.advanceTimersByTimeAsync(milliseconds);
beforeEach(() => {
    vi.useFakeTimers();
    calls = [];
    setVisibility(() => true);
    vi.stubGlobal(
        "fetch",
        (url: string, init: RequestInit) =>
            new Promise<Response>((resolve, reject) => {
                const signal = init.signal ?? null;
                signal?.addEventListener("abort", () => reject(new Error("aborted")));
                calls.push({
                    url,
                    signal,
                    answer: (body) => resolve(new Response(JSON.stringify(body))),
                });
            }),
    );
});
afterEach(() => {
    vi.unstubAllGlobals();
    vi.useRealTimers();
});

/** Reads as a component does; each test has a URL of its own. */
function shown(): { url: string; read: Query<unknown>; close: () => void } {
    number += 1;
    const url = `/api/v1/environments/e${number}/agents`;
    let read!: Query<unknown>;
    const close = $effect.root(() => {
        read = query(() => url);
    });
    flushSync();
    return { url, read, close };
}
const event = (environment: string) => ({
    reset: false,
    position: null,
    events: [{ environment, kind: "agent" as const, subject: "a", at: "" }],
});

describe("a read", () => {
    it("happens once for two components", async () => {
        const first = shown();
        let second!: Query<unknown>;
        const close = $effect.root(() => {
            second = query(() => first.url);
        });
        flushSync();
        await settle();
        expect(calls).toHaveLength(1);
        calls[0]?.answer({ n: 1 });
        await settle();
        expect([first.read.data, second.data]).toEqual([{ n: 1 }, { n: 1 }]);
        first.close();
        close();
    });

    it("is repeated once after many events, with one request in flight", async () => {
        const one = shown();
        await settle();
        for (let count = 0; count < 100; count += 1) applyBatch(event(`e${number}`));
        await settle(1000);
        expect(calls).toHaveLength(1);
        calls[0]?.answer({ n: 1 });
        await settle(1000);
        expect(calls).toHaveLength(2);
        expect(one.read.data).toEqual({ n: 1 });
        calls[1]?.answer({ n: 2 });
        await settle();
        expect(one.read.data).toEqual({ n: 2 });
        applyBatch(event("another"));
        await settle(1000);
        expect(calls).toHaveLength(2);
        one.close();
    });

    it("ends with its page", async () => {
        const one = shown();
        await settle();
        one.close();
        expect(calls[0]?.signal?.aborted).toBe(true);
    });

    it("waits while the tab is hidden", async () => {
        setVisibility(() => false);
        const one = shown();
        await settle(5000);
        expect(calls).toHaveLength(0);
        one.close();
    });
});
