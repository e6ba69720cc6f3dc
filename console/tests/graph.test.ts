// The graph in the browser: places, keys, changes without a new layout.
import { describe, expect, it } from "vitest";
import { between, fit, pan, reveal, toDrawing, zoom } from "../src/graph/camera";
import {
    cellAt,
    CELLS,
    HitGrid,
    keyOf,
    levels,
    patch,
    reach,
    step,
    titleOf,
    type Graph,
    type GraphNode,
} from "../src/graph/model";

const node = (
    name: string,
    layer: number,
    row: number,
    more: Partial<GraphNode> = {},
): GraphNode => ({
    kind: "resource",
    id: `t::R[a,n=${name}]`,
    type: "t::R",
    agent: "a",
    value: name,
    status: "deployed",
    count: 1,
    x: layer * 300,
    y: row * 60,
    w: 216,
    h: 44,
    layer,
    ...more,
});
const graph = (nodes: GraphNode[], pairs: [number, number][]): Graph => ({
    scope: "all",
    group: "none",
    total: nodes.length,
    nodes,
    edges: pairs.map(([from, to]) => ({ from, to, n: 1, back: false, points: [] })),
    left_out: { nodes: 0, by_status: {} },
    left_out_edges: 0,
    bounds: { w: 900, h: 600 },
    position: 1,
    counted_at: "2026-01-01T00:00:00Z",
});
/** `a` is required by `b` and `c`; `d` requires both; `e` is alone. */
const diamond = () =>
    graph(
        [node("a", 0, 0), node("b", 1, 0), node("c", 1, 1), node("d", 2, 0), node("e", 0, 1)],
        [
            [0, 1],
            [0, 2],
            [1, 3],
            [2, 3],
        ],
    );

describe("the camera", () => {
    it("fits a drawing, and never enlarges it", () => {
        const view = { w: 1000, h: 500 };
        const large = fit({ w: 4000, h: 1000 }, view);
        expect(large.scale).toBeCloseTo(952 / 4000);
        expect(toDrawing(large, 500, 250)).toEqual({ x: 2000, y: 500 });
        expect(fit({ w: 100, h: 100 }, view).scale).toBe(1);
    });

    it("keeps the place under the pointer while it zooms", () => {
        const before = { scale: 0.5, x: 30, y: 40 };
        const pointer = { x: 300, y: 200 };
        const place = toDrawing(before, pointer.x, pointer.y);
        const after = zoom(before, 1.7, pointer);
        expect(toDrawing(after, pointer.x, pointer.y).x).toBeCloseTo(place.x);
        expect(toDrawing(after, pointer.x, pointer.y).y).toBeCloseTo(place.y);
        expect(zoom(before, 1000, pointer).scale).toBe(2);
    });

    it("never loses the drawing, and reveals a box", () => {
        const view = { w: 800, h: 600 };
        const bounds = { w: 1000, h: 1000 };
        const lost = pan({ scale: 1, x: 0, y: 0 }, 1e6, -1e6, bounds, view);
        expect(lost).toEqual({ scale: 1, x: 740, y: -940 });
        const shown = reveal(lost, { x: 900, y: 900, w: 50, h: 40 }, view);
        expect(shown.x + 950).toBeLessThanOrEqual(800);
    });

    it("moves a painted bitmap to where a new view sees it", () => {
        const painted = { scale: 0.5, x: 10, y: 20 };
        const now = { scale: 1, x: -5, y: 7 };
        const moved = between(painted, now);
        // The place (100, 100) was painted at (60, 70) and is seen at (95, 107).
        expect([60 * moved.scale + moved.x, 70 * moved.scale + moved.y]).toEqual([95, 107]);
    });
});

describe("the graph", () => {
    it("finds the node at a place", () => {
        const nodes = Array.from({ length: 300 }, (_, index) =>
            node(String(index), index % 10, Math.floor(index / 10)),
        );
        const grid = new HitGrid(nodes);
        for (const [index, one] of nodes.entries())
            expect(grid.at(one.x + 100, one.y + 20)).toBe(index);
        expect(grid.at(250, 20)).toBeNull();
        expect(grid.at(-5000, 1)).toBeNull();
    });

    it("walks along edges and columns", () => {
        const drawn = diamond();
        expect(step(drawn, 0, "ArrowRight")).toBe(1);
        expect(step(drawn, 1, "ArrowDown")).toBe(2);
        expect(step(drawn, 2, "ArrowRight")).toBe(3);
        expect(step(drawn, 3, "ArrowLeft")).toBe(1);
        expect(step(drawn, 0, "ArrowUp")).toBeNull();
        // Without an edge, the next node on that side.
        expect(step(drawn, 4, "ArrowRight")).toBe(2);
    });

    it("highlights causes and dependents, not siblings", () => {
        const found = reach(diamond(), 1);
        expect([...found.nodes].toSorted()).toEqual([0, 1, 3]);
        expect([...found.edges].toSorted()).toEqual([0, 2]);
    });

    it("lists every node, by level and from above", () => {
        const columns = levels(diamond());
        expect(columns.map((column) => column.nodes)).toEqual([[0, 4], [1, 2], [3]]);
    });

    it("finds a cell of an opened group", () => {
        const cells = Array.from({ length: 25 }, (_, index) => ({
            id: String(index),
            status: "deployed" as const,
            count: 1,
        }));
        const opened = node("g", 0, 0, { kind: "group", cells, w: 264, h: 92 });
        expect(cellAt(opened, CELLS.left + 1, CELLS.top + 1)).toBe(0);
        expect(cellAt(opened, CELLS.left + 4 * CELLS.step + 1, CELLS.top + CELLS.step + 1)).toBe(
            24,
        );
        expect(cellAt(opened, CELLS.left + 6 * CELLS.step, CELLS.top + CELLS.step + 1)).toBeNull();
    });

    it("names nodes by what they are", () => {
        expect(titleOf(node("x", 0, 0), "none")).toEqual({ name: "x", detail: "R · a" });
        const siblings = node("x", 0, 0, { kind: "siblings", count: 40 });
        expect(titleOf(siblings, "none").name).toBe("40 × R");
        const shared = node("x", 0, 0, { kind: "group", id: "", count: 3 });
        expect(titleOf(shared, "set")).toEqual({ name: "Shared set", detail: "3 resources" });
    });
});

describe("a newer answer", () => {
    it("changes states, and no place", () => {
        const shown = diamond();
        const now = diamond();
        now.nodes[1] = { ...node("b", 1, 0), status: "failed", y: 999 };
        const patched = patch({ ...shown, edges: shown.edges.slice(1) }, now);
        expect(patched.changes).toBe(1);
        expect(patched.graph.nodes[1]).toMatchObject({ status: "failed", y: 0 });
        expect(patched.graph.edges).toHaveLength(3);
    });

    it("with the same structure is taken as it is", () => {
        const now = diamond();
        now.nodes[3] = { ...node("d", 2, 0), status: "failed" };
        const patched = patch(diamond(), now);
        expect(patched).toMatchObject({ changes: 0, graph: now });
    });

    it("counts new nodes, and dims those whose states it does not have", () => {
        const now = graph([node("a", 0, 0), node("z", 0, 1)], []);
        const patched = patch(diamond(), now);
        expect(patched.changes).toBe(5);
        expect(patched.graph.nodes.map(keyOf)).toEqual(diamond().nodes.map(keyOf));
        expect(patched.gone.has(keyOf(node("b", 1, 0)))).toBe(true);
        expect(patched.gone.has(keyOf(node("a", 0, 0)))).toBe(false);
    });
});
