// The filter of the resource table: text with tokens, the URL, and the API's parameters.
import type { Schemas, Status } from "../api/types";
import { STATUSES } from "./labels";

export type ResourceFilter = {
    status: string[];
    type: string | null;
    agent: string | null;
    set: string | null;
    value: string | null;
    sort: string | null;
};

const NAMES = ["status", "type", "agent", "set", "value"] as const;

export function fromQuery(query: URLSearchParams): ResourceFilter {
    const status = (query.get("status") ?? "").split(",").filter(Boolean);
    const text = (name: string) => query.get(name) || null;
    return {
        status,
        type: text("type"),
        agent: text("agent"),
        set: text("set"),
        value: text("value"),
        sort: text("sort"),
    };
}

export function toQuery(filter: ResourceFilter): Record<string, string | null> {
    return {
        status: filter.status.join(",") || null,
        type: filter.type,
        agent: filter.agent,
        set: filter.set,
        value: filter.value,
        sort: filter.sort,
    };
}

const needsQuotes = (text: string) => /[\s"]/.test(text);
const quote = (text: string) => (needsQuotes(text) ? `"${text.replaceAll('"', "")}"` : text);

/** `status:failed,skipped agent:web1 shop`, as in the filter bar. */
export function toText(filter: ResourceFilter): string {
    const parts: string[] = [];
    const negated = filter.status.filter((status) => status.startsWith("!"));
    const plain = filter.status.filter((status) => !status.startsWith("!"));
    if (plain.length > 0) parts.push(`status:${plain.join(",")}`);
    if (negated.length > 0) parts.push(`-status:${negated.map((one) => one.slice(1)).join(",")}`);
    for (const name of ["type", "agent", "set"] as const) {
        const value = filter[name];
        if (value) parts.push(`${name}:${quote(value)}`);
    }
    if (filter.value) parts.push(quote(filter.value));
    return parts.join(" ");
}

/** Reads the filter bar. Words without a name search in the identifying value. */
export function parse(text: string): { filter: ResourceFilter; problem: string | null } {
    const filter: ResourceFilter = {
        status: [],
        type: null,
        agent: null,
        set: null,
        value: null,
        sort: null,
    };
    const words: string[] = [];
    let problem: string | null = null;
    for (const match of text.matchAll(/(-?)(?:(\w+):)?(?:"([^"]*)"?|(\S+))/g)) {
        const [whole, minus, name, quoted, plain] = match;
        const value = quoted ?? plain ?? "";
        if (name === "status") {
            const given = value.split(",").filter(Boolean);
            const unknown = given.find((status) => !STATUSES.includes(status as Status));
            if (unknown) problem = `${unknown} is not a state`;
            else filter.status.push(...given.map((status) => (minus ? `!${status}` : status)));
        } else if (name === "type" || name === "agent" || name === "set") {
            filter[name] = value || null;
        } else if (name === "value") {
            words.push(value);
        } else if (name === undefined || whole.includes("::")) {
            words.push(quoted ?? whole);
        } else {
            problem = `${name} is not a filter: use ${NAMES.join(", ")}`;
        }
    }
    filter.value = words.join(" ") || null;
    const mixed = new Set(filter.status.map((status) => status.startsWith("!")));
    if (mixed.size > 1) problem = "status: and -status: exclude each other";
    return { filter, problem };
}

export function isEmpty(filter: ResourceFilter): boolean {
    return toText(filter) === "";
}

/** The filter in the body of a deploy or a repair. */
export function toSelection(filter: ResourceFilter): Schemas["ResourceSelection"] {
    const selection: Schemas["ResourceSelection"] = {};
    if (filter.agent) selection.agent = filter.agent;
    if (filter.type) selection.type = filter.type;
    if (filter.value) selection.value = filter.value;
    if (filter.set) selection.set = filter.set;
    if (filter.status.length > 0) {
        selection.status = filter.status as Schemas["ResourceSelection"]["status"] & object;
    }
    return selection;
}
