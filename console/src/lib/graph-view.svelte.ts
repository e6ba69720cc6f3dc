// The drawing that a page shows: it follows the states at once, and a new layout when it is applied.
import { untrack } from "svelte";
import type { Url } from "../api/client";
import { patch, type Graph, type Patched } from "../graph/model";
import { query, type Query } from "../live/cache.svelte";
import { makesStale } from "../live/kinds";
import { live } from "../live/live.svelte";

/** Pause before an answer is asked for again that is older than the latest event. */
const STALE_MS = 1000;

export type GraphView = {
    readonly answer: Query<Graph>;
    readonly shown: Patched | null;
    /** Changes with each layout. */
    readonly layout: number;
    apply: () => void;
};

/** Reads a graph for the life of a component. */
export function graphView(url: () => Url<Graph> | undefined): GraphView {
    const answer = query(url);
    let shown = $state.raw<Patched | null>(null);
    let shownUrl: string | undefined;
    let layout = $state(0);
    let latest = 0;

    function replace(graph: Graph) {
        shown = { graph, gone: new Set(), changes: 0 };
        layout += 1;
    }
    $effect(() => {
        const now = answer.data;
        const current = url();
        if (!now) return;
        untrack(() => {
            if (shown && shownUrl === current) shown = patch(shown.graph, now);
            else replace(now);
            shownUrl = current;
        });
        // Answers for large environments are cached: this one may be older than the event.
        if (now.position >= latest) return;
        const timer = setTimeout(() => answer.reload(), STALE_MS);
        return () => clearTimeout(timer);
    });
    $effect(() =>
        live.onBatch(({ events, position }) => {
            const current = untrack(url);
            if (current && events.some((event) => makesStale(event, current)))
                latest = Number(position) || latest;
        }),
    );
    return {
        answer,
        get shown() {
            return shown;
        },
        get layout() {
            return layout;
        },
        apply: () => {
            if (answer.data) replace(answer.data);
        },
    };
}
