// The rows of the resource table: pages by cursor, reloads of the shown pages, changes in place.
import { at, Problem, read } from "../api/client";
import type { ResourceSummary } from "../api/types";
import { makesStale } from "../live/kinds";
import { live } from "../live/live.svelte";
import { toParameters, type ResourceFilter } from "./filters";

const PAGE = 200;
/** A short page continues up to this number of times by itself. */
const EMPTY_MAX = 5;
const RELOAD_MS = 500;

type Part = { after: string | null; ids: string[] };

export class ResourceList {
    rows = $state.raw<ResourceSummary[]>([]);
    /** Ids of rows that no longer match the filter; they stay until the list is applied anew. */
    gone = $state.raw(new Set<string>());
    /** New rows that wait to be applied. */
    fresh = $state.raw(0);
    isLoading = $state.raw(true);
    isComplete = $state.raw(false);
    isSearching = $state.raw(false);
    error = $state.raw<Problem | undefined>(undefined);
    #parts: Part[] = [];
    #next: string | null = null;
    #generation = 0;
    #timer: ReturnType<typeof setTimeout> | undefined;
    #isReloading = false;
    #isDirty = false;
    #abort = new AbortController();
    #unlisten: () => void;

    constructor(
        readonly env: string,
        readonly filter: ResourceFilter,
    ) {
        void this.more();
        this.#unlisten = live.onBatch(({ reset, events }) => {
            const url = `/api/v1/environments/${env}/resources`;
            if (reset || events.some((event) => makesStale(event, url))) this.#schedule();
        });
    }

    destroy() {
        this.#unlisten();
        this.#abort.abort();
        this.#generation += 1;
        clearTimeout(this.#timer);
    }

    #url(after: string | null) {
        const { sort } = this.filter;
        const query = {
            limit: PAGE,
            ...toParameters(this.filter),
            ...(sort ? { sort } : {}),
            ...(after ? { after } : {}),
        };
        return at("/api/v1/environments/{environment}/resources", { environment: this.env }, query);
    }

    /** Loads the next page. */
    async more(force = false) {
        if (this.isComplete || (this.isLoading && this.#parts.length > 0) || this.error) return;
        if (this.isSearching && !force) return;
        const generation = this.#generation;
        this.isLoading = true;
        this.isSearching = false;
        try {
            for (let tries = 0; tries < EMPTY_MAX; tries += 1) {
                const after = this.#next;
                const page = await read(this.#url(after), this.#abort.signal);
                if (generation !== this.#generation) return;
                this.#parts.push({ after, ids: page.items.map((item) => item.id) });
                this.rows = [...this.rows, ...page.items];
                this.#next = page.next ?? null;
                this.isComplete = !page.next;
                if (!page.next || page.items.length >= PAGE / 2) break;
                // Rare matches in a large environment: the reader decides how long to search.
                if (tries === EMPTY_MAX - 1) this.isSearching = true;
            }
        } catch (error) {
            if (generation !== this.#generation) return;
            this.error =
                error instanceof Problem
                    ? error
                    : new Problem(0, "unexpected", "Unexpected error", String(error));
        }
        this.isLoading = false;
    }

    /** Ids of all matches, at most `limit`; `null` if there are more. */
    async allIds(limit: number): Promise<string[] | null> {
        const ids: string[] = [];
        let after: string | null = null;
        do {
            const page: { items: ResourceSummary[]; next?: string | null } = await read(
                this.#url(after),
                this.#abort.signal,
            );
            ids.push(...page.items.map((item) => item.id));
            after = page.next ?? null;
        } while (after && ids.length <= limit);
        return ids.length > limit ? null : ids;
    }

    retry() {
        this.error = undefined;
        void this.more();
    }

    /** Shows the list as it is now: rows that left it disappear, new ones appear. */
    apply() {
        this.#generation += 1;
        this.#parts = [];
        this.#next = null;
        this.rows = [];
        this.gone = new Set();
        this.fresh = 0;
        this.isComplete = false;
        this.isLoading = false;
        this.isSearching = false;
        void this.more();
    }

    /** Index of the first row on the screen, which decides the pages that are reloaded. */
    firstShown = 0;

    #schedule() {
        this.#isDirty = true;
        if (this.#timer !== undefined || this.#isReloading) return;
        this.#timer = setTimeout(() => {
            this.#timer = undefined;
            if (document.visibilityState !== "hidden") void this.#reload();
        }, RELOAD_MS);
    }

    /** Reloads the pages around the screen and patches their rows, which keep their places. */
    async #reload() {
        const generation = this.#generation;
        this.#isReloading = true;
        this.#isDirty = false;
        try {
            let index = 0;
            const shown = this.#parts.filter((part) => {
                const from = index;
                index += part.ids.length;
                return index >= this.firstShown - 50 && from <= this.firstShown + 150;
            });
            const current = new Map<string, ResourceSummary>();
            const expected = new Set<string>();
            let fresh = 0;
            for (const part of shown) {
                const page = await read(this.#url(part.after), this.#abort.signal);
                if (generation !== this.#generation) return;
                const known = new Set(part.ids);
                for (const id of part.ids) expected.add(id);
                for (const item of page.items) {
                    current.set(item.id, item);
                    if (!known.has(item.id) && !this.#has(item.id)) fresh += 1;
                }
            }
            const gone = new Set(this.gone);
            this.rows = this.rows.map((row) => {
                const now = current.get(row.id);
                if (now) gone.delete(row.id);
                else if (expected.has(row.id)) gone.add(row.id);
                return now ?? row;
            });
            this.gone = gone;
            this.fresh = fresh;
            await this.#refreshGone(generation);
        } catch {
            // The next event tries again.
        } finally {
            this.#isReloading = false;
            if (this.#isDirty && generation === this.#generation) this.#schedule();
        }
    }

    #has(id: string): boolean {
        return this.#parts.some((part) => part.ids.includes(id));
    }

    /** Rows that left the filter show their present state, dimmed. */
    async #refreshGone(generation: number) {
        const ids = [...this.gone].slice(0, 20);
        const found = await Promise.all(
            ids.map((id) =>
                read(
                    at("/api/v1/environments/{environment}/resources/{id}", {
                        environment: this.env,
                        id,
                    }),
                ).catch(() => null),
            ),
        );
        if (generation !== this.#generation) return;
        const byId = new Map(found.filter((one) => one !== null).map((one) => [one.id, one]));
        if (byId.size > 0) this.rows = this.rows.map((row) => byId.get(row.id) ?? row);
    }
}
