// The event stream: parsing, gaps, duplicates, resets, backoff, sign-out.
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { EventParser } from "../src/live/sse";
import {
    backoff,
    BATCH_MS,
    EventStream,
    SILENCE_MS,
    type Batch,
    type StreamState,
} from "../src/live/stream";

/** A server whose connections the test feeds. */
class Fake {
    connections: { headers: Headers; send: (text: string) => void; end: () => void }[] = [];
    status = 200;
    isDown = false;
    fetch = (async (_: string, init: RequestInit) => {
        if (this.isDown) {
            this.connections.push({
                headers: new Headers(init.headers),
                send: () => undefined,
                end: () => undefined,
            });
            throw new TypeError("refused");
        }
        let feed!: ReadableStreamDefaultController<Uint8Array>;
        const body = new ReadableStream<Uint8Array>({
            start: (controller) => void (feed = controller),
        });
        const encode = new TextEncoder();
        this.connections.push({
            headers: new Headers(init.headers),
            send: (text) => feed.enqueue(encode.encode(text)),
            end: () => feed.close(),
        });
        return new Response(this.status === 200 ? body : null, { status: this.status });
    }) as unknown as typeof fetch;
    get last() {
        const last = this.connections.at(-1);
        if (!last) throw new Error("no connection");
        return last;
    }
}

const event = (id: number, kind: string, subject: string, environment = "e") =>
    `id: ${id}\nevent: ${kind}\ndata: ${JSON.stringify({ environment, kind, subject, at: "" })}\n\n`;

let fake: Fake;
let batches: Batch[];
let states: StreamState[];
let stream: EventStream;
beforeEach(() => {
    vi.useFakeTimers();
    fake = new Fake();
    batches = [];
    states = [];
    stream = new EventStream({
        url: "/api/v1/events",
        fetch: fake.fetch,
        position: "7",
        random: () => 1,
        onBatch: (batch) => batches.push(batch),
        onState: (state) => states.push(state),
    });
});
afterEach(() => {
    stream.stop();
    vi.useRealTimers();
});
const settle = (milliseconds = 0) => vi.advanceTimersByTimeAsync(milliseconds);

describe("the parser", () => {
    it("joins pieces and ignores comments", () => {
        const parser = new EventParser();
        expect(parser.push(": heartbeat\n\nid: 4\nev")).toEqual([]);
        expect(parser.push("ent: agent\r\ndata: a\ndata: b\n\n")).toEqual([
            { id: "4", event: "agent", data: "a\nb" },
        ]);
    });
});

describe("the stream", () => {
    it("continues after the last position", async () => {
        stream.start();
        await settle();
        expect(fake.last.headers.get("last-event-id")).toBe("7");
        fake.last.send(event(8, "agent", "web1"));
        await settle(BATCH_MS);
        fake.last.end();
        await settle(1000);
        expect(fake.connections).toHaveLength(2);
        expect(fake.last.headers.get("last-event-id")).toBe("8");
    });

    it("merges events of the same object into one batch", async () => {
        stream.start();
        await settle();
        for (let id = 8; id < 1008; id += 1) fake.last.send(event(id, "resources", "*"));
        fake.last.send(event(1008, "agent", "web1"));
        await settle(BATCH_MS);
        expect(batches).toHaveLength(1);
        expect(batches[0]?.events.map((one) => one.kind)).toEqual(["resources", "agent"]);
        expect(batches[0]?.position).toBe("1008");
    });

    it("reports a reset", async () => {
        stream.start();
        await settle();
        fake.last.send("id: 90\nevent: reset\ndata: {}\n\n");
        await settle(BATCH_MS);
        expect(batches).toEqual([{ reset: true, events: [], position: "90" }]);
    });

    it("treats a first connection as a reset, since earlier events were not announced", async () => {
        stream.stop();
        stream = new EventStream({
            url: "/",
            fetch: fake.fetch,
            position: null,
            onBatch: (batch) => batches.push(batch),
            onState: () => undefined,
        });
        stream.start();
        await settle(BATCH_MS);
        expect(batches[0]?.reset).toBe(true);
    });

    it("stops at 401 and connects again after a login", async () => {
        fake.status = 401;
        stream.start();
        await settle(60_000);
        expect(fake.connections).toHaveLength(1);
        expect(states.at(-1)).toBe("unauthenticated");
        fake.status = 200;
        stream.reconnect();
        await settle();
        expect(states.at(-1)).toBe("open");
    });

    it("reconnects a silent connection", async () => {
        stream.start();
        await settle();
        fake.last.send(": heartbeat\n\n");
        await settle(SILENCE_MS - 1000);
        expect(fake.connections).toHaveLength(1);
        await settle(3000);
        expect(fake.connections).toHaveLength(2);
    });

    it("sends at most 4 requests a minute to a server that is down for 5 minutes", async () => {
        fake.isDown = true;
        stream.start();
        await settle(60_000);
        const before = fake.connections.length;
        await settle(240_000);
        expect((fake.connections.length - before) / 4).toBeLessThanOrEqual(4);
        expect(before).toBeLessThanOrEqual(8);
        fake.isDown = false;
        await settle(31_000);
        expect(states.at(-1)).toBe("open");
    });

    it("doubles its pauses up to 30 s, with jitter", () => {
        expect([1, 2, 3, 7, 20].map((failures) => backoff(failures, () => 1))).toEqual([
            500, 1000, 2000, 30_000, 30_000,
        ]);
        expect(backoff(3, () => 0)).toBe(1000);
    });
});
