// Health of an environment in a word, and its rank: trouble first.
import type { Schemas } from "../api/types";
import { count } from "./format";
import { sumOf, type Tone } from "./labels";

export type Health = { rank: number; tone: Tone; text: string };

export function environmentHealth(item: Schemas["EnvironmentSummary"]): Health {
    const { environment, by_status: counts } = item;
    const failed = sumOf(counts, ["failed", "unavailable"]);
    const skipped = sumOf(counts, ["skipped", "non_compliant"]);
    const unknown = sumOf(counts, ["undefined", "skipped_for_undefined"]);
    const busy = sumOf(counts, ["available", "deploying"]);
    if (environment.transitioning === "error") return { rank: 0, tone: "fail", text: "Cannot run" };
    if (failed > 0) return { rank: 1, tone: "fail", text: `${count(failed)} failed` };
    if (environment.halted) return { rank: 2, tone: "warn", text: "Halted" };
    if (environment.transitioning === "yes")
        return { rank: 2, tone: "busy", text: "Being deleted" };
    if (skipped > 0) return { rank: 3, tone: "warn", text: `${count(skipped)} differ` };
    if (unknown > 0) return { rank: 4, tone: "blocked", text: `${count(unknown)} unknown` };
    if (busy > 0) return { rank: 5, tone: "busy", text: `${count(busy)} pending` };
    if (item.total === 0) return { rank: 7, tone: "idle", text: "Empty" };
    return { rank: 6, tone: "ok", text: "Matches, works" };
}
