// Words about operations.
import type { Operation } from "../api/types";
import { plural } from "./format";
import { words, type Tone } from "./labels";

export function operationTone(operation: Operation): Tone {
    if (operation.transitioning === "yes") return "busy";
    if (operation.transitioning === "error") return "fail";
    const outcome = operation.outcome as Record<string, number> | null;
    const isBad = ["failed", "skipped", "unavailable"].some((name) => (outcome?.[name] ?? 0) > 0);
    return isBad ? "warn" : "ok";
}

type Request = {
    ids?: string[];
    agents?: string[];
    filter?: Record<string, unknown>;
    verify?: boolean;
};

/** `user:ada` as `ada`, `token:ci` as `token ci`. */
export function actorName(actor: string): string {
    const [kind = "", ...rest] = actor.split(":");
    const name = rest.join(":");
    if (!name) return actor;
    return kind === "user" ? name : `${kind} ${name}`;
}

/** What an operation was asked to touch. */
export function operationScope(operation: Operation): string {
    const request = (operation.request ?? {}) as Request;
    const parts: string[] = [];
    if (request.ids?.length === 1) parts.push(String(request.ids[0]));
    else if (request.ids?.length) parts.push(plural(request.ids.length, "resource"));
    if (request.agents?.length) parts.push(`agents ${request.agents.slice(0, 3).join(", ")}`);
    const filter = Object.entries(request.filter ?? {}).filter(
        ([, value]) => value !== null && value !== undefined && value !== "",
    );
    for (const [name, value] of filter) parts.push(`${name}: ${String(value)}`);
    if (parts.length === 0 && ["deploy", "repair"].includes(operation.kind)) {
        return request.verify ? "all resources, verified" : "all resources";
    }
    return parts.join(", ");
}

/** Counts of the outcome, as `12 deployed, 1 failed`. */
export function outcomeCounts(operation: Operation): { name: string; value: number }[] {
    const outcome = operation.outcome as Record<string, unknown> | null;
    if (!outcome || typeof outcome !== "object") return [];
    const names: Record<string, string> = {
        deployed: "deployed",
        changed: "changed",
        failed: "failed",
        skipped: "skipped",
        unavailable: "unavailable",
        non_compliant: "differ",
        cancelled: "cancelled",
        as_wanted: "unchanged",
        blocked: "blocked",
        withdrawn: "withdrawn",
        followed: "followed",
    };
    return Object.entries(outcome)
        .filter(([name, value]) => name in names && typeof value === "number" && value > 0)
        .map(([name, value]) => ({ name: names[name] ?? words(name), value: value as number }));
}
