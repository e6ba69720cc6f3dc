// The signed-in account, its rights, and the sign-in overlay.
import { at, onUnauthenticated, Problem, read, sendTo } from "../api/client";
import type { Environment, Me, RoleName, Schemas } from "../api/types";
import { clearCache } from "../live/cache.svelte";
import { live } from "../live/live.svelte";

const RANK: Record<RoleName, number> = { viewer: 1, operator: 2, developer: 3, admin: 4 };

/** The strongest role of an account in an environment, a project or the whole server. */
export function rankIn(
    me: Me | undefined,
    place: { project?: string; environment?: string } = {},
): number {
    let rank = 0;
    for (const granted of me?.roles ?? []) {
        const covers = granted.environment
            ? granted.environment === place.environment
            : !granted.project || granted.project === place.project;
        if (covers) rank = Math.max(rank, RANK[granted.role] ?? 0);
    }
    return rank;
}

class Session {
    me = $state.raw<Me | undefined>(undefined);
    /** `unknown` until the first answer of the server. */
    state = $state<"unknown" | "signed-out" | "signed-in" | "expired" | "unreachable">("unknown");
    #waiting: ((signedIn: boolean) => void)[] = [];
    #renewal: ReturnType<typeof setTimeout> | undefined;

    constructor() {
        onUnauthenticated(() => this.#expired());
    }

    /** Asks the server for the account of the cookie. */
    async start() {
        try {
            this.#signedIn(await read(at("/api/v1/me", {})));
        } catch (error) {
            if (error instanceof Problem && error.status === 401) this.state = "signed-out";
            else this.state = "unreachable";
        }
    }

    async login(name: string, password: string) {
        const session = await sendTo<Schemas["Session"]>("POST", "/api/v1/login", {
            name,
            password,
            cookie: true,
        });
        if (this.me && this.me.name !== session.user.name) clearCache();
        this.#signedIn(session.user);
        this.#renewBefore(session.expires);
        live.reconnect();
        for (const resume of this.#waiting.splice(0)) resume(true);
    }

    async logout() {
        await sendTo("POST", "/api/v1/logout").catch(() => undefined);
        clearTimeout(this.#renewal);
        live.stop();
        // A full load leaves nothing of the account in memory.
        window.location.assign("/login");
    }

    /** True if the account has a role in a place. */
    has(role: RoleName, place?: { project?: string; environment?: string }): boolean {
        return rankIn(this.me, place) >= RANK[role];
    }

    hasIn(role: RoleName, environment: Environment | undefined): boolean {
        if (!environment) return false;
        return this.has(role, { project: environment.project, environment: environment.id });
    }

    #signedIn(me: Me) {
        this.me = me;
        this.state = "signed-in";
        live.start();
    }

    /** Waits for a new login in the overlay; the caller then repeats its request. */
    #expired(): Promise<boolean> {
        if (this.state !== "signed-in" && this.state !== "expired") return Promise.resolve(false);
        this.state = "expired";
        return new Promise((resume) => this.#waiting.push(resume));
    }

    /** Renews at half life, so that an open page stays signed in. */
    #renewBefore(expires: string) {
        clearTimeout(this.#renewal);
        const half = Math.min((Date.parse(expires) - Date.now()) / 2, 2 ** 31 - 1);
        this.#renewal = setTimeout(
            async () => {
                const session = await sendTo<Schemas["Session"]>("POST", "/api/v1/renew").catch(
                    () => null,
                );
                if (session) {
                    this.me = session.user;
                    this.#renewBefore(session.expires);
                }
            },
            Math.max(half, 60_000),
        );
    }
}

export const session = new Session();
