// Requests to the API: typed paths, problems as errors, idempotency keys, retries of reads.
import type {
    Body,
    Methods,
    PathOf,
    PathValues,
    QueryValues,
    Response as Answer,
    Schemas,
} from "./types";

/** A path of the API with its query. Remembers the type of the response. */
export type Url<T> = string & { readonly response?: T };

/** An error of the API (RFC 9457), or of the network with the code `network`. */
export class Problem extends Error {
    constructor(
        readonly status: number,
        readonly code: string,
        readonly title: string,
        readonly detail: string,
        readonly requestId: string | null = null,
        readonly retryAfter: number | null = null,
        readonly fields: Schemas["FieldProblem"][] = [],
        readonly documents: Schemas["DocumentProblem"][] = [],
    ) {
        super(detail || title);
    }
}

/** Asks the session for a new login. Resolves to true if the request may be repeated. */
export type SignIn = () => Promise<boolean>;
let signIn: SignIn = async () => false;
export function onUnauthenticated(handler: SignIn) {
    signIn = handler;
}

function fill(path: string, values: Record<string, unknown>): string {
    return path.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
        encodeURIComponent(String(values[name])),
    );
}

/** Writes a query, without empty values. */
export function queryString(query: Record<string, unknown> | undefined): string {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query ?? {})) {
        if (value === undefined || value === null || value === "") continue;
        search.set(name, Array.isArray(value) ? value.join(",") : String(value));
    }
    const text = search.toString();
    return text && `?${text}`;
}

/** The URL of something to read. */
export function at<P extends PathOf<"get">>(
    path: P,
    values: PathValues<P, "get">,
    query?: QueryValues<P, "get">,
): Url<Answer<P, "get">> {
    return fill(path, values) + queryString(query as Record<string, unknown> | undefined);
}

async function problemOf(response: Response): Promise<Problem> {
    const id = response.headers.get("x-request-id");
    const wait = Number.parseInt(response.headers.get("retry-after") ?? "", 10);
    const body = (await response.json().catch(() => null)) as Schemas["Problem"] | null;
    return new Problem(
        response.status,
        body?.code ?? "unexpected",
        body?.title ?? `Unexpected response ${response.status}`,
        body?.detail ??
            "The response is not from an Orrery server. Check the proxy in front of it.",
        id,
        Number.isNaN(wait) ? null : wait,
        body?.fields ?? [],
        body?.documents ?? [],
    );
}

type Options = {
    body?: unknown;
    headers?: Record<string, string>;
    signal?: AbortSignal | undefined;
    /** False for the login itself. */
    authenticates?: boolean;
};

/** The server did not answer. A write may have taken effect, unless its key makes it repeatable. */
function networkProblem(method: string): Problem {
    const detail =
        method === "GET"
            ? "The server cannot be reached. It is tried again."
            : "The server did not answer, so the outcome is unknown. Check it before you repeat this.";
    return new Problem(0, "network", "No connection to the server", detail);
}

const pause = (milliseconds: number) => new Promise((done) => setTimeout(done, milliseconds));

async function request(method: string, url: string, options: Options): Promise<Response> {
    const headers: Record<string, string> = { "X-Orrery-Client": "console", ...options.headers };
    if (options.body !== undefined) headers["Content-Type"] = "application/json";
    if (method === "POST" && options.authenticates !== false) {
        headers["Idempotency-Key"] ??= crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
    }
    const isRepeatable = method === "GET" || "Idempotency-Key" in headers;
    for (let attempt = 0; ; attempt += 1) {
        let response: Response;
        try {
            response = await fetch(url, {
                method,
                headers,
                body: options.body === undefined ? null : JSON.stringify(options.body),
                signal: options.signal ?? null,
                credentials: "same-origin",
            });
        } catch (error) {
            if (options.signal?.aborted) throw error;
            if (!isRepeatable || attempt >= 2) throw networkProblem(method);
            await pause(300 * 2 ** attempt);
            continue;
        }
        if (response.ok) return response;
        if (response.status === 401 && options.authenticates !== false && (await signIn()))
            continue;
        const isOverloaded = response.status === 503 && method === "GET" && attempt < 2;
        if (!isOverloaded) throw await problemOf(response);
        await pause(300 * 2 ** attempt);
    }
}

/** Reads JSON. */
export async function read<T>(url: Url<T>, signal?: AbortSignal): Promise<T> {
    const response = await request("GET", url, { signal });
    return (await response.json()) as T;
}

/** Reads an object with its revision, for `If-Match`. */
export async function readRevised<T>(url: Url<T>): Promise<{ value: T; revision: string | null }> {
    const response = await request("GET", url, {});
    return { value: (await response.json()) as T, revision: response.headers.get("etag") };
}

/** Reads all pages of a list, up to a number of items. */
export async function readAll<T>(
    url: Url<{ items: T[]; next?: string | null }>,
    max: number,
    signal?: AbortSignal,
): Promise<T[]> {
    const items: T[] = [];
    let next: string | null | undefined;
    do {
        const mark: string = url.includes("?") ? "&" : "?";
        const page: { items: T[]; next?: string | null } = await read(
            next ? `${url}${mark}after=${encodeURIComponent(next)}` : url,
            signal,
        );
        items.push(...page.items);
        next = page.next;
    } while (next && items.length < max);
    return items;
}

type SendOptions<P extends PathOf<M>, M extends Methods> = {
    path: PathValues<P, M>;
    body?: Body<P, M>;
    ifMatch?: string | null;
};

/** Changes something. */
export async function send<M extends Exclude<Methods, "get">, P extends PathOf<M>>(
    method: M,
    path: P,
    options: SendOptions<P, M>,
): Promise<Answer<P, M>> {
    return sendTo(method, fill(path, options.path), options.body, options.ifMatch);
}

/** Asks for a computation that changes nothing. */
export async function ask<T>(url: string, body: unknown, signal: AbortSignal): Promise<T> {
    const response = await request("POST", url, { body, signal });
    return (await response.json()) as T;
}

/** Changes something at a path that the API returned among its actions. */
export async function sendTo<T>(
    method: string,
    url: string,
    body?: unknown,
    ifMatch?: string | null,
): Promise<T> {
    const headers: Record<string, string> = ifMatch ? { "If-Match": ifMatch } : {};
    const authenticates = !/\/(login|setup|renew)$/.test(url);
    const response = await request(method.toUpperCase(), url, { body, headers, authenticates });
    const text = await response.text();
    return (text ? JSON.parse(text) : undefined) as T;
}
