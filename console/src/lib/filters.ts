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
    /** What the state consists of. */
    compliance: string | null;
    outcome: string | null;
    parked: string | null;
    blocked: string | null;
};

const NAMES = [
    "status",
    "type",
    "agent",
    "set",
    "value",
    "compliance",
    "outcome",
    "parked",
    "blocked",
] as const;
/** Filters that are a name and a text. */
const TEXTS = ["type", "agent", "set", "compliance", "outcome", "parked", "blocked"] as const;
/** Values of the filters with a closed set of them. */
export const CHOICES: Record<string, readonly string[]> = {
    compliance: ["compliant", "has_update", "non_compliant", "undefined"],
    outcome: [
        "deployed",
        "failed",
        "skipped",
        "skipped_for_dependency",
        "unavailable",
        "non_compliant",
    ],
    parked: ["true", "false"],
    blocked: ["true", "false"],
};

/** The filter that selects everything. */
export const EVERYTHING: ResourceFilter = {
    status: [],
    type: null,
    agent: null,
    set: null,
    value: null,
    sort: null,
    compliance: null,
    outcome: null,
    parked: null,
    blocked: null,
};

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
        compliance: text("compliance"),
        outcome: text("outcome"),
        parked: text("parked"),
        blocked: text("blocked"),
    };
}

/** The filter as parameters of the list and the counts of resources. */
export function toParameters(filter: ResourceFilter) {
    const { status, type, agent, set, value, compliance, outcome, parked, blocked } = filter;
    return {
        ...(status.length > 0 ? { status: status.join(",") } : {}),
        ...(type ? { type } : {}),
        ...(agent ? { agent } : {}),
        ...(set ? { set } : {}),
        ...(value ? { value } : {}),
        ...(compliance ? { compliance } : {}),
        ...(outcome ? { last_outcome: outcome } : {}),
        ...(parked ? { parked: parked === "true" } : {}),
        ...(blocked ? { blocked: blocked === "true" } : {}),
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
        compliance: filter.compliance,
        outcome: filter.outcome,
        parked: filter.parked,
        blocked: filter.blocked,
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
    for (const name of TEXTS) {
        const value = filter[name];
        if (value) parts.push(`${name}:${quote(value)}`);
    }
    if (filter.value) parts.push(quote(filter.value));
    return parts.join(" ");
}

/** Reads the filter bar. Words without a name search in the identifying value. */
export function parse(text: string): { filter: ResourceFilter; problem: string | null } {
    const filter: ResourceFilter = { ...EVERYTHING, status: [] };
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
        } else if (TEXTS.includes(name as (typeof TEXTS)[number])) {
            const choices = CHOICES[name ?? ""];
            const unknown = value.split(",").find((one) => choices && !choices.includes(one));
            if (unknown) problem = `${name}: ${unknown} is not one of ${choices?.join(", ")}`;
            filter[name as (typeof TEXTS)[number]] = value || null;
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

/** True if a deploy can select by the filter itself; else it names the resources. */
export function isSelection(filter: ResourceFilter): boolean {
    const { type, agent, compliance, outcome, parked, blocked } = filter;
    return !compliance && !outcome && !parked && !blocked && !/,/.test(`${type}${agent}`);
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
