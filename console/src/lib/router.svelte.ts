// Routes and the location. The path names the thing, the query the view of it.
import type { Component } from "svelte";

type Loader = () => Promise<{ default: Component }>;
export type Route = { pattern: string; name: string; load: Loader };

class Location {
    path = $state("/");
    search = $state("");
    hash = $state("");
    query = $derived(new URLSearchParams(this.search));

    constructor() {
        if (typeof window === "undefined") return;
        this.#read();
        window.addEventListener("popstate", () => this.#read());
    }

    #read() {
        this.path = window.location.pathname;
        this.search = window.location.search;
        this.hash = window.location.hash;
    }

    /** Goes to a page of the console. */
    go(url: string, { replace = false }: { replace?: boolean } = {}) {
        const current = window.location.pathname + window.location.search;
        if (url === current) return;
        const samePath = new URL(url, window.location.origin).pathname === this.path;
        if (replace) history.replaceState(history.state, "", url);
        else history.pushState(null, "", url);
        this.#read();
        if (!samePath) window.scrollTo(0, 0);
    }

    /** Changes parts of the query; `null` and the empty text remove one. */
    set(changes: Record<string, string | null | undefined>, { replace = true } = {}) {
        const query = new URLSearchParams(this.search);
        for (const [name, value] of Object.entries(changes)) {
            if (value === null || value === undefined || value === "") query.delete(name);
            else query.set(name, value);
        }
        const text = query.toString();
        this.go(this.path + (text && `?${text}`), { replace });
    }
}

export const location = new Location();

/** Values of a pattern such as `/e/:env/versions/:n`, or `null`. */
export function match(pattern: string, path: string): Record<string, string> | null {
    const own = pattern.split("/");
    const given = path.replace(/\/$/, "").split("/");
    if (pattern === "/") return path === "/" ? {} : null;
    if (own.length !== given.length) return null;
    const values: Record<string, string> = {};
    for (const [index, part] of own.entries()) {
        const text = given[index] ?? "";
        if (part.startsWith(":")) {
            try {
                values[part.slice(1)] = decodeURIComponent(text);
            } catch {
                return null;
            }
            if (!text) return null;
        } else if (part !== text) return null;
    }
    return values;
}

/** Handles clicks on links to pages of the console. */
export function followLink(event: MouseEvent) {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.("a");
    const href = link?.getAttribute("href");
    if (!link || !href?.startsWith("/") || link.target || link.hasAttribute("download")) return;
    if (/^\/(api|health|metrics)(\/|$)/.test(href)) return;
    event.preventDefault();
    location.go(href);
}

/** Paths of an environment's pages. */
export function environmentPath(environment: string, ...rest: (string | number)[]): string {
    return ["/e", environment, ...rest.map((part) => encodeURIComponent(String(part)))].join("/");
}
