// The graph as the page holds it: places of nodes, neighbours, changes without a new layout.
import type { Schemas } from "../api/types";
import { count, plural } from "../lib/format";
import { statusLabel } from "../lib/labels";

export type Graph = Schemas["ResourceGraph"];
export type GraphNode = Graph["nodes"][number];
export type GraphEdge = Graph["edges"][number];

/** Identity of a node over several answers. */
export const keyOf = (node: GraphNode) => `${node.kind} ${node.id}`;

/** What a node is called: its short name, and a line about it. */
export function titleOf(node: GraphNode, group: string): { name: string; detail: string } {
    const type = node.type?.split("::").at(-1) ?? "";
    if (node.kind === "resource")
        return { name: node.value ?? node.id, detail: `${type} · ${node.agent ?? ""}` };
    if (node.kind === "siblings")
        return {
            name: `${count(node.count)} × ${type}`,
            detail: node.agent ? `alike, on ${node.agent}` : "alike, on several agents",
        };
    if (node.kind === "other_groups")
        return {
            name: `${count(node.groups ?? 0)} more`,
            detail: plural(node.count, "resource"),
        };
    const shared = group === "set" && node.id === "" ? "Shared set" : node.id;
    return { name: shared, detail: plural(node.count, "resource") };
}

/** A sentence about a node, for screen readers and tooltips. */
export function describe(node: GraphNode, group: string): string {
    const { name, detail } = titleOf(node, group);
    const hidden = [
        node.hidden_in ? `${plural(node.hidden_in, "requirement")} not drawn` : "",
        node.hidden_out ? `${plural(node.hidden_out, "dependent")} not drawn` : "",
    ];
    return [`${name}`, detail, statusLabel(node.status), ...hidden].filter(Boolean).join(", ");
}

/** `12 failed, 310 deployed`, worst first. */
export function countsText(counts: Partial<Record<string, number>>, order: string[]): string {
    return order
        .filter((status) => (counts[status] ?? 0) > 0)
        .map((status) => `${count(counts[status] ?? 0)} ${statusLabel(status).toLowerCase()}`)
        .join(", ");
}

/** Neighbours of each node: the edges that end there, and those that begin there. */
export function incidence(graph: Graph): { into: number[][]; from: number[][] } {
    const into: number[][] = graph.nodes.map(() => []);
    const from: number[][] = graph.nodes.map(() => []);
    for (const [index, edge] of graph.edges.entries()) {
        from[edge.from]?.push(index);
        into[edge.to]?.push(index);
    }
    return { into, from };
}

/** Everything that a node requires, or that requires it, over any number of steps. */
export function reach(graph: Graph, start: number): { nodes: Set<number>; edges: Set<number> } {
    const { into, from } = incidence(graph);
    const nodes = new Set([start]);
    const edges = new Set<number>();
    for (const side of ["in", "out"] as const) {
        const seen = new Set([start]);
        const open = [start];
        for (let at = open.pop(); at !== undefined; at = open.pop()) {
            for (const index of (side === "in" ? into : from)[at] ?? []) {
                const edge = graph.edges[index];
                if (!edge) continue;
                edges.add(index);
                const next = side === "in" ? edge.from : edge.to;
                nodes.add(next);
                if (!seen.has(next)) {
                    seen.add(next);
                    open.push(next);
                }
            }
        }
    }
    return { nodes, edges };
}

const CELL = 256;

/** Finds the node at a place without looking at all of them. */
export class HitGrid {
    readonly #cells = new Map<string, number[]>();
    constructor(readonly nodes: GraphNode[]) {
        for (const [index, node] of nodes.entries()) {
            for (let x = Math.floor(node.x / CELL); x <= Math.floor((node.x + node.w) / CELL); x++)
                for (
                    let y = Math.floor(node.y / CELL);
                    y <= Math.floor((node.y + node.h) / CELL);
                    y++
                ) {
                    const key = `${x} ${y}`;
                    const cell = this.#cells.get(key);
                    if (cell) cell.push(index);
                    else this.#cells.set(key, [index]);
                }
        }
    }

    at(x: number, y: number): number | null {
        const cell = this.#cells.get(`${Math.floor(x / CELL)} ${Math.floor(y / CELL)}`);
        const found = cell?.find((index) => {
            const node = this.nodes[index];
            return (
                node !== undefined &&
                x >= node.x &&
                x <= node.x + node.w &&
                y >= node.y &&
                y <= node.y + node.h
            );
        });
        return found ?? null;
    }
}

/** Size of a cell of an opened group, with the distance to the next one, and where they begin. */
export const CELLS = { size: 10, step: 12, perRow: 20, left: 12, top: 58 };

/** The cell of an opened group at a place in the drawing. */
export function cellAt(node: GraphNode, x: number, y: number): number | null {
    const column = Math.floor((x - node.x - CELLS.left) / CELLS.step);
    const row = Math.floor((y - node.y - CELLS.top) / CELLS.step);
    if (column < 0 || row < 0 || column >= CELLS.perRow) return null;
    const index = row * CELLS.perRow + column;
    return index < (node.cells?.length ?? 0) ? index : null;
}

/** The node that an arrow key reaches: along an edge, or the next one of the column. */
export function step(graph: Graph, at: number, key: string): number | null {
    const node = graph.nodes[at];
    if (!node) return null;
    const middle = (one: GraphNode) => one.y + one.h / 2;
    const nearest = (indexes: number[]) => {
        let best: number | null = null;
        for (const index of indexes) {
            const other = graph.nodes[index];
            const known = best === null ? undefined : graph.nodes[best];
            if (!other) continue;
            const distance = Math.abs(middle(other) - middle(node));
            if (!known || distance < Math.abs(middle(known) - middle(node))) best = index;
        }
        return best;
    };
    if (key === "ArrowLeft" || key === "ArrowRight") {
        const { into, from } = incidence(graph);
        const isLeft = key === "ArrowLeft";
        const edges = (isLeft ? into : from)[at] ?? [];
        const along = nearest(
            edges.flatMap((index) => {
                const edge = graph.edges[index];
                return edge ? [isLeft ? edge.from : edge.to] : [];
            }),
        );
        if (along !== null) return along;
        // Nodes without edges stand in a grid.
        return nearest(
            [...graph.nodes.keys()].filter((index) => {
                const other = graph.nodes[index];
                return other !== undefined && (isLeft ? other.x < node.x : other.x > node.x);
            }),
        );
    }
    const isUp = key === "ArrowUp";
    const column = [...graph.nodes.keys()].filter((index) => {
        const other = graph.nodes[index];
        if (!other || index === at || Math.abs(other.x - node.x) > 4) return false;
        return isUp ? other.y < node.y : other.y > node.y;
    });
    return nearest(column);
}

/** A drawing with the states of a newer answer. Its nodes keep their places. */
export type Patched = {
    graph: Graph;
    /** Keys of nodes that the newer answer does not have: their states are not known. */
    gone: Set<string>;
    /** Number of differences that a new layout would show. */
    changes: number;
};

export function patch(shown: Graph, now: Graph): Patched {
    const current = new Map(now.nodes.map((node) => [keyOf(node), node]));
    const gone = new Set<string>();
    const nodes = shown.nodes.map((node) => {
        const known = current.get(keyOf(node));
        if (!known) {
            gone.add(keyOf(node));
            return node;
        }
        const { x, y, w, h, layer } = node;
        return { ...known, x, y, w, h, layer };
    });
    const pairs = (graph: Graph) =>
        new Set(
            graph.edges.map((edge) => {
                const [from, to] = [graph.nodes[edge.from], graph.nodes[edge.to]];
                return from && to ? `${keyOf(from)}\n${keyOf(to)}` : "";
            }),
        );
    const [before, after] = [pairs(shown), pairs(now)];
    let changes = gone.size + (now.nodes.length - (shown.nodes.length - gone.size));
    if (changes === 0) {
        changes = [...after].filter((pair) => !before.has(pair)).length;
        changes += [...before].filter((pair) => !after.has(pair)).length;
    }
    // The same drawing: everything of the newer answer holds, with its places.
    if (changes === 0) return { graph: now, gone, changes };
    return { graph: { ...now, nodes, edges: shown.edges, bounds: shown.bounds }, gone, changes };
}

/** Nodes by column, from above: the order in which a list reads them. */
export function levels(graph: Graph): { layer: number; nodes: number[] }[] {
    const found = new Map<number, number[]>();
    for (const [index, node] of graph.nodes.entries()) {
        const level = found.get(node.layer);
        if (level) level.push(index);
        else found.set(node.layer, [index]);
    }
    const place = (index: number) => graph.nodes[index]?.y ?? 0;
    return [...found]
        .toSorted(([a], [b]) => a - b)
        .map(([layer, nodes]) => ({
            layer,
            nodes: nodes.toSorted((a, b) => place(a) - place(b) || a - b),
        }));
}
