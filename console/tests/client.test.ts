// The generated types are those of the committed OpenAPI document.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it, vi } from "vitest";
import { at, onUnauthenticated, Problem, read, sendTo } from "../src/api/client";

const here = join(__dirname, "..");

describe("the generated client", () => {
    it("is current: `npm run client` writes it", { timeout: 60_000 }, () => {
        const directory = mkdtempSync(join(tmpdir(), "orrery-client-"));
        try {
            const fresh = join(directory, "schema.d.ts");
            const program = join(here, "node_modules/.bin/openapi-typescript");
            execFileSync(program, [
                join(here, "../docs/reference/openapi.json"),
                "--output",
                fresh,
            ]);
            const committed = readFileSync(join(here, "src/api/schema.d.ts"), "utf8");
            expect(readFileSync(fresh, "utf8") === committed).toBe(true);
        } finally {
            rmSync(directory, { recursive: true });
        }
    });
});

describe("requests", () => {
    afterEach(() => vi.unstubAllGlobals());
    const json = (status: number, body: unknown, headers = {}) =>
        new Response(JSON.stringify(body), { status, headers });

    it("name the client and encode ids", async () => {
        const calls: [string, RequestInit][] = [];
        vi.stubGlobal("fetch", async (url: string, init: RequestInit) => {
            calls.push([url, init]);
            return json(200, {});
        });
        await read(
            at("/api/v1/environments/{environment}/resources/{id}", {
                environment: "e",
                id: "a[b,c=/d]",
            }),
        );
        expect(calls[0]?.[0]).toBe("/api/v1/environments/e/resources/a%5Bb%2Cc%3D%2Fd%5D");
        expect(new Headers(calls[0]?.[1].headers).get("x-orrery-client")).toBe("console");
    });

    it("repeat a POST without an answer under the same key", async () => {
        const keys: (string | null)[] = [];
        vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
            keys.push(new Headers(init.headers).get("idempotency-key"));
            if (keys.length < 3) throw new TypeError("cut off");
            return json(202, { id: "1" });
        });
        expect(await sendTo("POST", "/api/v1/x", {})).toEqual({ id: "1" });
        expect(new Set(keys).size).toBe(1);
        expect(keys[0]).not.toBeNull();
    });

    it("become problems with a request id", async () => {
        vi.stubGlobal("fetch", async () =>
            json(
                409,
                { code: "exists", title: "Exists", detail: "taken" },
                { "x-request-id": "r1" },
            ),
        );
        const error = await sendTo("PUT", "/api/v1/x", {}).catch((error: unknown) => error);
        expect(error).toBeInstanceOf(Problem);
        expect(error).toMatchObject({ status: 409, code: "exists", requestId: "r1" });
    });

    it("wait for a login after 401 and are then repeated", async () => {
        let isSignedIn = false;
        onUnauthenticated(async () => (isSignedIn = true));
        vi.stubGlobal("fetch", async () =>
            isSignedIn ? json(200, { ok: true }) : json(401, { code: "unauthenticated" }),
        );
        expect(await read("/api/v1/me")).toEqual({ ok: true });
    });
});
