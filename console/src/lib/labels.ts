// Words of the API as people read them: labels, colours and order of states.
import type { Schemas, Status } from "../api/types";

export type Tone = "ok" | "busy" | "fail" | "warn" | "blocked" | "idle";

export const STATUS: Record<Status, { label: string; tone: Tone }> = {
    failed: { label: "Failed", tone: "fail" },
    unavailable: { label: "Unavailable", tone: "fail" },
    skipped: { label: "Skipped", tone: "warn" },
    non_compliant: { label: "Differs", tone: "warn" },
    undefined: { label: "Value unknown", tone: "blocked" },
    skipped_for_undefined: { label: "Waits for unknown", tone: "blocked" },
    deploying: { label: "Deploying", tone: "busy" },
    available: { label: "Change pending", tone: "busy" },
    deployed: { label: "Deployed", tone: "ok" },
    orphaned: { label: "Not managed", tone: "idle" },
};

/** All states, worst first. */
export const STATUSES = Object.keys(STATUS) as Status[];

/** A state of a newer server is shown by its name. */
export function statusLabel(status: string): string {
    return STATUS[status as Status]?.label ?? words(status);
}

export function statusTone(status: string): Tone {
    return STATUS[status as Status]?.tone ?? "idle";
}

/** `skipped_for_dependency` as `Skipped for dependency`. */
export function words(text: string): string {
    const spaced = text.replaceAll(/[_-]/g, " ");
    return spaced.charAt(0).toUpperCase() + spaced.slice(1);
}

/** A sentence with its first letter in upper case, unless it begins with an id. */
export function sentence(text: string): string {
    return /^[a-z]+[\s,]/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

const OUTCOME: Record<Schemas["OutcomeStatus"], Tone> = {
    deployed: "ok",
    failed: "fail",
    skipped: "warn",
    skipped_for_dependency: "warn",
    unavailable: "fail",
    non_compliant: "warn",
};
export function outcomeTone(outcome: string | null | undefined): Tone {
    return OUTCOME[outcome as Schemas["OutcomeStatus"]] ?? "idle";
}

export const VERSION_TONE: Record<Schemas["VersionStatus"], Tone> = {
    active: "ok",
    candidate: "busy",
    retired: "idle",
    skipped_candidate: "idle",
};
export const COMPILE_TONE: Record<Schemas["CompileState"], Tone> = {
    queued: "idle",
    running: "busy",
    succeeded: "ok",
    failed: "fail",
    cancelled: "idle",
};
export const AGENT_TONE: Record<Schemas["AgentStatus"], Tone> = {
    up: "ok",
    paused: "warn",
    unavailable: "fail",
    down: "idle",
};
export const CHANGE_MARK: Record<string, string> = {
    added: "+",
    created: "+",
    modified: "~",
    updated: "~",
    deleted: "-",
    purged: "-",
};

/** Groups of states in the ring "matches the model". */
export const MATCH_GROUPS: { name: string; tone: Tone; statuses: Status[] }[] = [
    { name: "match", tone: "ok", statuses: ["deployed"] },
    { name: "change pending", tone: "busy", statuses: ["available", "deploying"] },
    {
        name: "differ",
        tone: "warn",
        statuses: ["non_compliant", "failed", "skipped", "unavailable"],
    },
    { name: "unknown", tone: "blocked", statuses: ["undefined", "skipped_for_undefined"] },
];

/** Groups of states in the ring "works". */
export const WORK_GROUPS: { name: string; tone: Tone; statuses: Status[] }[] = [
    { name: "work", tone: "ok", statuses: ["deployed", "non_compliant"] },
    { name: "failed", tone: "fail", statuses: ["failed", "unavailable"] },
    { name: "skipped", tone: "warn", statuses: ["skipped"] },
    { name: "blocked", tone: "blocked", statuses: ["undefined", "skipped_for_undefined"] },
    { name: "not run yet", tone: "busy", statuses: ["available", "deploying"] },
];

export function sumOf(counts: Partial<Record<Status, number>>, statuses: Status[]): number {
    return statuses.reduce((sum, status) => sum + (counts[status] ?? 0), 0);
}
