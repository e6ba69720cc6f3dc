// Places of the groups of a cluster layout: what needs others stands left of them.
import type { Schemas } from "../api/types";

export type Group = Schemas["LayoutGroup"];
export type GroupState = "kept" | "added" | "removed";
export type PlacedGroup = {
    group: Group;
    key: string;
    state: GroupState;
    x: number;
    y: number;
    width: number;
    height: number;
    services: string[];
};
export type Edge = { from: PlacedGroup; to: PlacedGroup; services: string };
export type Topology = { groups: PlacedGroup[]; edges: Edge[]; width: number; height: number };

export const GROUP_WIDTH = 208;
const GAP_X = 72;
const GAP_Y = 24;
const HEAD = 52;
const LINE = 18;
/** Services of a group that are named. */
export const SERVICES_SHOWN = 8;

const keyOf = (group: Group, state: GroupState) =>
    [state, group.hardwaretype, group.imagetype, ...group.services].join(" ");

/** Longest way from a group to one that needs no other; a cycle ends it. */
function depths(needs: Map<string, Set<string>>): Map<string, number> {
    const found = new Map<string, number>();
    const visit = (key: string, path: Set<string>): number => {
        const known = found.get(key);
        if (known !== undefined) return known;
        if (path.has(key)) return 0;
        path.add(key);
        let depth = 0;
        for (const next of needs.get(key) ?? [])
            if (next !== key) depth = Math.max(depth, 1 + visit(next, path));
        path.delete(key);
        found.set(key, depth);
        return depth;
    };
    for (const key of needs.keys()) visit(key, new Set());
    return found;
}

/** Lays out groups in columns by what they need, in the order of their names. */
export function layOut(
    layout: { group: Group; state: GroupState }[],
    dependencies: Record<string, string[]>,
): Topology {
    const keyed = layout.map(({ group, state }) => ({ group, state, key: keyOf(group, state) }));
    const homes = new Map<string, string[]>();
    for (const { group, key } of keyed)
        for (const service of group.services)
            homes.set(service, [...(homes.get(service) ?? []), key]);
    const needs = new Map<string, Set<string>>(keyed.map(({ key }) => [key, new Set<string>()]));
    for (const { group, key } of keyed)
        for (const service of group.services)
            for (const required of dependencies[service] ?? [])
                for (const home of homes.get(required) ?? [])
                    if (home !== key) needs.get(key)?.add(home);
    const depth = depths(needs);
    const deepest = Math.max(0, ...depth.values());
    const columns: PlacedGroup[][] = Array.from({ length: deepest + 1 }, () => []);
    for (const { group, state, key } of keyed.toSorted((a, b) => a.key.localeCompare(b.key))) {
        const services = group.services.toSorted();
        const lines = Math.min(services.length, SERVICES_SHOWN + 1);
        // What needs nothing stands right.
        const column = deepest - (depth.get(key) ?? 0);
        columns[column]?.push({
            group,
            key,
            state,
            services,
            x: column * (GROUP_WIDTH + GAP_X),
            y: 0,
            width: GROUP_WIDTH,
            height: HEAD + Math.max(1, lines) * LINE + 8,
        });
    }
    const heightOf = (column: PlacedGroup[]) =>
        column.reduce((sum, one) => sum + one.height + GAP_Y, -GAP_Y);
    const height = Math.max(0, ...columns.map(heightOf));
    for (const column of columns) {
        let y = (height - heightOf(column)) / 2;
        for (const placed of column) {
            placed.y = Math.round(y);
            y += placed.height + GAP_Y;
        }
    }
    const groups = columns.flat();
    const byKey = new Map(groups.map((placed) => [placed.key, placed]));
    const edges: Edge[] = [];
    for (const from of groups) {
        for (const target of needs.get(from.key) ?? []) {
            const to = byKey.get(target);
            if (!to) continue;
            const services = from.services
                .flatMap((service) =>
                    (dependencies[service] ?? [])
                        .filter((required) => to.services.includes(required))
                        .map((required) => `${service} needs ${required}`),
                )
                .join(", ");
            edges.push({ from, to, services });
        }
    }
    return { groups, edges, width: deepest * (GROUP_WIDTH + GAP_X) + GROUP_WIDTH, height };
}

type Node = Schemas["PreviewedNode"];

/** Groups of nodes with the same hardware, image and services. */
export function groupNodes(nodes: Node[]): Group[] {
    const groups = new Map<string, Group>();
    for (const node of nodes) {
        const services = node.services.toSorted();
        const key = [node.hardwaretype, node.imagetype, ...services].join(" ");
        const group = groups.get(key);
        if (group) group.count += 1;
        else {
            const { hardwaretype, imagetype } = node;
            groups.set(key, { count: 1, hardwaretype, imagetype, services });
        }
    }
    return [...groups.values()];
}
