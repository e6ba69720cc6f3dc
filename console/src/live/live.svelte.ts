// The page's connection to the event stream.
import { applyBatch, becameVisible } from "./cache.svelte";
import { SharedStream, type LinkState } from "./sharing";
import type { Batch } from "./stream";

/** A broken stream is mentioned after this time. */
const PATIENCE_MS = 3000;

class Live {
    link = $state.raw<LinkState>({ state: "connecting", lastByte: 0, leads: false });
    /** True if the stream has been broken for a while. */
    isBroken = $state(false);
    isPaused = $state(false);
    #patience: ReturnType<typeof setTimeout> | undefined;
    #held: Batch[] = [];
    #listeners = new Set<(batch: Batch) => void>();
    #stream = new SharedStream(
        {
            fetch: (...options) => fetch(...options),
            locks: typeof navigator === "undefined" ? undefined : navigator.locks,
            channel: (name) =>
                "BroadcastChannel" in globalThis ? new BroadcastChannel(name) : null,
            now: () => Date.now(),
            isVisible: () => document.visibilityState !== "hidden",
            onVisible: (listener) => {
                document.addEventListener("visibilitychange", listener);
                return () => document.removeEventListener("visibilitychange", listener);
            },
        },
        "/api/v1/events",
        (batch) => this.#receive(batch),
        (link) => this.#changed(link),
    );

    start() {
        this.#stream.start();
        document.addEventListener("visibilitychange", () => {
            if (document.visibilityState !== "hidden") becameVisible();
        });
    }

    stop() {
        this.#stream.stop();
    }

    reconnect() {
        this.#stream.reconnect();
    }

    /** Stops or continues to apply events to the page. */
    togglePause() {
        this.isPaused = !this.isPaused;
        if (!this.isPaused) for (const batch of this.#held.splice(0)) this.#apply(batch);
    }

    onBatch(listener: (batch: Batch) => void): () => void {
        this.#listeners.add(listener);
        return () => this.#listeners.delete(listener);
    }

    #receive(batch: Batch) {
        if (!this.isPaused) return this.#apply(batch);
        // Held batches are hints: a few of them stand for all.
        if (this.#held.length > 200)
            this.#held = [{ reset: true, events: [], position: batch.position }];
        this.#held.push(batch);
    }

    #apply(batch: Batch) {
        applyBatch(batch);
        for (const listener of this.#listeners) listener(batch);
    }

    #changed(link: LinkState) {
        const wasOpen = this.link.state === "open";
        this.link = link;
        if (link.state === "open") {
            clearTimeout(this.#patience);
            this.#patience = undefined;
            this.isBroken = false;
        } else if (wasOpen || this.#patience === undefined) {
            this.#patience ??= setTimeout(() => {
                this.isBroken = this.link.state !== "open" && this.link.state !== "stopped";
            }, PATIENCE_MS);
        }
    }
}

export const live = new Live();
