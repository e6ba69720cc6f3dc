// Words about clusters, and requests of operations on them.
import { ask, sendTo } from "../api/client";
import {
    clusterUrl,
    type ChangeAnswer,
    type Cluster,
    type ClusterPlan,
    type ClusterStatus,
    type OperationKind,
    type OperationRequest,
    type OperationState,
} from "../api/clusters";
import type { Tone } from "./labels";

export const CLUSTER_TONE: Record<ClusterStatus, Tone> = {
    pending: "busy",
    active: "ok",
    degraded: "warn",
    incomplete: "fail",
    inconsistent: "fail",
    terminated: "idle",
};
export const STATE_TONE: Record<OperationState, Tone> = {
    running: "busy",
    paused: "warn",
    done: "ok",
    failed: "fail",
    aborted: "idle",
};

const VERBS: Record<OperationKind, string> = {
    create: "Create",
    resize: "Resize",
    "add-services": "Add services",
    "remove-services": "Remove services",
    "change-hardware": "Change hardware",
    reconfigure: "Reconfigure",
    start: "Start",
    stop: "Stop",
    restart: "Restart",
    update: "Update to the newest template",
    replace: "Replace a machine",
    revert: "Go back",
    delete: "Delete",
};
export const verbOf = (kind: OperationKind): string => VERBS[kind] ?? kind;

/** Seconds until the lease ends; `null` without an end. */
export function leaseLeft(cluster: Cluster, now: number): number | null {
    if (!cluster.expires || cluster.terminated) return null;
    return Math.max(0, Math.round((Date.parse(cluster.expires) - now) / 1000));
}

/** The plan of an operation, which changes nothing. */
export async function planOf(
    cluster: Cluster,
    request: OperationRequest,
    signal: AbortSignal,
): Promise<ClusterPlan | null> {
    const url = `${clusterUrl(cluster.id)}/operations`;
    const answer = await ask<ChangeAnswer>(url, { ...request, plan_only: true }, signal);
    return answer.plan ?? null;
}

/** Requests an operation on the revision that its plan was about. */
export function operate(cluster: Cluster, request: OperationRequest): Promise<ChangeAnswer> {
    const url = `${clusterUrl(cluster.id)}/operations`;
    return sendTo("POST", url, request, `"${cluster.revision}"`);
}

/** What a plan does to nodes, in words. */
export function planText(plan: ClusterPlan): string {
    const parts = [
        [plan.added.length, "add", "adds"],
        [plan.removed.length, "remove", "removes"],
        [plan.replaced.length, "replace", "replaces"],
    ] as const;
    const nodes = parts
        .filter(([number]) => number > 0)
        .map(([number, , verb]) => `${verb} ${number} ${number === 1 ? "node" : "nodes"}`);
    nodes.push(`${plan.steps} ${plan.steps === 1 ? "step" : "steps"}`);
    return nodes.join(", ");
}
