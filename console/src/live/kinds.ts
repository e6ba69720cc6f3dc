// Which reads an event makes stale. The kinds are those of docs/reference/api.md; a test compares.
import type { EventKind, Schemas } from "../api/types";

export type ChangeEvent = Schemas["ChangeEvent"];

const environment = String.raw`/api/v1/environments/[^/?]+`;
const within = (tail: string) => new RegExp(`^${environment}${tail}`);
const top = (tail: string) => new RegExp(`^/api/v1/${tail}`);

/** Reads that show states of resources. */
const states = [
    within("/(resources|resource-counts|resource-facets|graph|activity|runs)([/?]|$)"),
    top(String.raw`environment-summaries`),
];

/** Kind of an event to the URLs that it makes stale. An event names its environment, if any. */
export const STALE: Record<EventKind, RegExp[]> = {
    environment: [
        top(String.raw`environments(\?|$)`),
        within(String.raw`(\?|$)`),
        top("environment-summaries"),
        within("/activity"),
    ],
    setting: [within("/settings")],
    version: [within("/(versions|inventory)"), ...states],
    // An engine that takes up a version announces its resources: the version becomes the active one.
    resources: [...states, within(String.raw`/versions(\?|$)`)],
    request: [
        within("/(operations|activity)"),
        top("environment-summaries"),
        top(String.raw`(operations|server)(\?|$)`),
    ],
    dry_run: [within("/versions/[^/]+/dry-runs")],
    agent: [within("/(agents|activity)"), within("/resources/[^/]+/why")],
    remote_agent: [within("/(agents|remote-agents)")],
    invitation: [within("/remote-agents")],
    compile: [within("/compiles")],
    parameter: [within("/(parameters|facts|resources/[^/]+/facts)")],
    secret: [within("/secrets"), top("secrets")],
    notification: [within("/(unread-)?notifications")],
    discovered: [within("/discovered")],
    project: [top("projects"), top(String.raw`environments(\?|$)`)],
    user: [top("(users|role-assignments|me)")],
    token: [top("tokens")],
    cluster_document: [top("cluster-documents"), top("projects/[^/]+/cluster-documents")],
};

/** True if an event makes what was read from a URL stale. */
export function makesStale(event: ChangeEvent, url: string): boolean {
    const patterns = STALE[event.kind];
    // A newer server may send kinds that this console does not know.
    if (!patterns?.some((pattern) => pattern.test(url))) return false;
    const named = /^\/api\/v1\/environments\/([^/?]+)/.exec(url);
    return !named || !event.environment || named[1] === event.environment;
}
