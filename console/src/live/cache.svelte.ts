// Cache of reads, keyed by URL: shows old data while it reloads, reloads what events make stale,
// at most once per interval and with one request in flight.
import { untrack } from "svelte";
import { Problem, read, type Url } from "../api/client";
import { makesStale } from "./kinds";
import type { Batch } from "./stream";

/** Shortest time between two loads of one URL. Counts are expensive for the server. */
const RELOAD_MS = 250;
const COUNTS_RELOAD_MS = 1000;
const SIZE_MAX = 50_000_000;

export class Entry<T> {
    data = $state.raw<T | undefined>(undefined);
    error = $state.raw<Problem | undefined>(undefined);
    /** Time of the data. */
    at = $state.raw(0);
    isLoading = $state.raw(false);
    users = 0;
    dirty = true;
    size = 0;
    lastUsed = 0;
    lastLoad = 0;
    timer: ReturnType<typeof setTimeout> | undefined;
    abort: AbortController | undefined;
    constructor(readonly url: Url<T>) {}
}

const entries = new Map<string, Entry<unknown>>();
let isVisible = () => typeof document === "undefined" || document.visibilityState !== "hidden";

function interval(url: string): number {
    return /resource-(counts|facets)|environment-summaries|activity|runs|\/graph/.test(url)
        ? COUNTS_RELOAD_MS
        : RELOAD_MS;
}

function entryOf<T>(url: Url<T>): Entry<T> {
    let entry = entries.get(url) as Entry<T> | undefined;
    if (!entry) {
        entry = new Entry<T>(url);
        entries.set(url, entry as Entry<unknown>);
        evict();
    }
    entry.lastUsed = Date.now();
    return entry;
}

/** Removes the least recently used data that no page shows. */
function evict() {
    let size = 0;
    for (const entry of entries.values()) size += entry.size;
    if (size <= SIZE_MAX && entries.size <= 400) return;
    const unused = [...entries.values()].filter((entry) => entry.users === 0 && entry.at > 0);
    unused.sort((a, b) => a.lastUsed - b.lastUsed);
    for (const entry of unused) {
        if (size <= SIZE_MAX && entries.size <= 400) return;
        size -= entry.size;
        entries.delete(entry.url);
    }
}

async function load(entry: Entry<unknown>) {
    entry.isLoading = true;
    entry.dirty = false;
    entry.lastLoad = Date.now();
    const abort = new AbortController();
    entry.abort = abort;
    try {
        const data = await read(entry.url, abort.signal);
        entry.data = data;
        entry.error = undefined;
        entry.at = Date.now();
        entry.size = JSON.stringify(data)?.length ?? 0;
    } catch (error) {
        if (abort.signal.aborted) {
            entry.isLoading = false;
            entry.dirty = true;
            schedule(entry);
            return;
        }
        entry.error =
            error instanceof Problem
                ? error
                : new Problem(0, "unexpected", "Unexpected error", String(error));
        // What the server no longer shows must not stay on the screen.
        if ([403, 404].includes(entry.error.status)) entry.data = undefined;
    }
    entry.isLoading = false;
    if (entry.dirty) schedule(entry);
}

function schedule(entry: Entry<unknown>) {
    if (entry.users === 0 || !isVisible()) return;
    if (entry.isLoading || entry.timer !== undefined) return;
    const wait = Math.max(0, entry.lastLoad + interval(entry.url) - Date.now());
    entry.timer = setTimeout(() => {
        entry.timer = undefined;
        if (entry.dirty && entry.users > 0 && isVisible()) void load(entry);
    }, wait);
}

/** Marks data as stale and reloads it if a page shows it. */
export function invalidate(matches: (url: string) => boolean) {
    for (const entry of entries.values()) {
        if (!matches(entry.url)) continue;
        entry.dirty = true;
        schedule(entry);
    }
}

/** Applies a batch of events. */
export function applyBatch({ reset, events }: Batch) {
    invalidate((url) => reset || events.some((event) => makesStale(event, url)));
}

/** Loads again what became stale while the tab was hidden. */
export function becameVisible() {
    for (const entry of entries.values()) if (entry.dirty) schedule(entry);
}

/** Drops everything: another account sees other things. */
export function clearCache() {
    for (const entry of entries.values()) {
        clearTimeout(entry.timer);
        entry.timer = undefined;
        entry.data = undefined;
        entry.dirty = true;
        if (entry.users === 0) entries.delete(entry.url);
        else schedule(entry);
    }
}

export type Query<T> = {
    readonly data: T | undefined;
    readonly error: Problem | undefined;
    readonly at: number;
    /** True until there is data or an error. */
    readonly isPending: boolean;
    readonly isLoading: boolean;
    reload: () => void;
};

/** Reads a URL for the life of a component. The URL may change; `undefined` reads nothing. */
export function query<T>(url: () => Url<T> | undefined): Query<T> {
    let entry = $state.raw<Entry<T> | undefined>(undefined);
    $effect(() => {
        const current = url();
        if (current === undefined) {
            entry = undefined;
            return;
        }
        const found = entryOf(current);
        entry = found;
        found.users += 1;
        untrack(() => {
            if (found.dirty || found.error) {
                found.dirty = true;
                schedule(found as Entry<unknown>);
            }
        });
        return () => {
            found.users -= 1;
            // No page waits for it any more: an expensive read ends with its page.
            if (found.users === 0) found.abort?.abort();
        };
    });
    return {
        get data() {
            return entry?.data;
        },
        get error() {
            return entry?.error;
        },
        get at() {
            return entry?.at ?? 0;
        },
        get isPending() {
            return !entry || (entry.data === undefined && entry.error === undefined);
        },
        get isLoading() {
            return entry?.isLoading ?? false;
        },
        reload: () => {
            if (!entry) return;
            entry.dirty = true;
            entry.lastLoad = 0;
            schedule(entry as Entry<unknown>);
        },
    };
}

/** Replaces a test's view of the page's visibility. */
export function setVisibility(visible: () => boolean) {
    isVisible = visible;
}
