// Draws the graph on a canvas: lines as rectangles, boxes, icons and text by zoom level.
import { cutMiddle } from "../lib/format";
import type { Tone } from "../lib/labels";
import { STATUSES, statusTone } from "../lib/labels";
import { shapesOf } from "../lib/state-shapes";
import type { Camera, Extent } from "./camera";
import { CELLS, keyOf, titleOf, type Graph, type GraphEdge, type GraphNode } from "./model";

export type Theme = Record<
    "bg" | "surface" | "raised" | "text" | "muted" | "accent" | "line" | "control" | Tone,
    string
>;

const NAMES = [
    "bg",
    "surface",
    "raised",
    "text",
    "muted",
    "accent",
    "line",
    "control",
    "ok",
    "busy",
    "fail",
    "warn",
    "blocked",
    "idle",
] as const;

/** Colours of the current theme. */
export function themeOf(element: Element): Theme {
    const style = getComputedStyle(element);
    return Object.fromEntries(
        NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
    ) as Theme;
}

/** Below this zoom, nodes are blocks of colour. */
const BLOCKS = 0.35;
/** Below this one, nodes have an icon and a name. */
const NAMES_ONLY = 0.7;
/** Smallest text on the screen. */
const TEXT_MIN = 12;

const paths = new Map<string, Path2D>();
function path(text: string): Path2D {
    let known = paths.get(text);
    if (!known) {
        known = new Path2D(text);
        paths.set(text, known);
    }
    return known;
}

/** Draws the icon of a state. `x` and `y` are its upper left corner. */
function icon(
    context: CanvasRenderingContext2D,
    status: string,
    theme: Theme,
    x: number,
    y: number,
    size: number,
) {
    context.save();
    context.translate(x, y);
    context.scale(size / 16, size / 16);
    context.lineCap = "round";
    context.lineJoin = "round";
    const colour = theme[statusTone(status)];
    for (const shape of shapesOf(status)) {
        if (shape.kind === "fill") {
            context.fillStyle = colour;
            context.fill(path(shape.path));
            continue;
        }
        context.strokeStyle = shape.kind === "cutout" ? theme.bg : colour;
        context.lineWidth = shape.kind === "cutout" ? 2 : 1.6;
        context.setLineDash(shape.dashed ? [2.4, 2.6] : []);
        context.stroke(path(shape.path));
    }
    context.restore();
}

/** Text that fits a width, cut in the middle: both ends of a path matter. */
function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
    if (context.measureText(text).width <= width) return text;
    let [low, high] = [1, text.length];
    while (low < high) {
        const middle = Math.ceil((low + high) / 2);
        if (context.measureText(cutMiddle(text, middle)).width <= width) low = middle;
        else high = middle - 1;
    }
    return low > 1 ? cutMiddle(text, low) : "";
}

/** A line of horizontal and vertical sections, each a rectangle. */
export function line(
    context: CanvasRenderingContext2D,
    { points, back }: GraphEdge,
    thickness: number,
) {
    const half = thickness / 2;
    for (let at = 0; at + 3 < points.length; at += 2) {
        const [x1 = 0, y1 = 0, x2 = 0, y2 = 0] = points.slice(at, at + 4);
        const left = Math.min(x1, x2) - half;
        const top = Math.min(y1, y2) - half;
        const w = Math.abs(x2 - x1) + thickness;
        const h = Math.abs(y2 - y1) + thickness;
        if (!back) {
            context.fillRect(left, top, w, h);
            continue;
        }
        // Dashes of a back edge.
        const isFlat = h <= thickness;
        for (let part = 0; part < (isFlat ? w : h); part += 10)
            if (isFlat) context.fillRect(left + part, top, Math.min(6, w - part), h);
            else context.fillRect(left, top + part, w, Math.min(6, h - part));
    }
}

/** Thickness of an edge in pixels of the screen: it grows with the logarithm of its count. */
export const thicknessOf = (edge: GraphEdge) =>
    edge.n > 1 ? Math.min(6, 1 + Math.log2(edge.n) / 2) : 1.2;

export type Painting = {
    graph: Graph;
    camera: Camera;
    view: Extent;
    theme: Theme;
    /** Keys of nodes whose states are not known any more. */
    gone: Set<string>;
};

function stateBar(
    context: CanvasRenderingContext2D,
    node: GraphNode,
    theme: Theme,
    { x, y, w, h }: { x: number; y: number; w: number; h: number },
) {
    const counts = (node.by_status ?? {}) as Record<string, number>;
    const parts = STATUSES.toReversed().filter((status) => (counts[status] ?? 0) > 0);
    let at = x;
    for (const status of parts) {
        const part = Math.max(3, ((counts[status] ?? 0) / node.count) * w);
        context.fillStyle = theme[statusTone(status)];
        context.fillRect(at, y, Math.max(0, Math.min(part, x + w - at)), h);
        at += part;
    }
}

function box(context: CanvasRenderingContext2D, node: GraphNode, painting: Painting) {
    const { theme, camera, gone, graph } = painting;
    const { scale } = camera;
    const { x, y, w, h } = node;
    const tone = theme[statusTone(node.status)];
    const isSeveral = node.kind !== "resource";
    context.globalAlpha = gone.has(keyOf(node)) ? 0.4 : 1;
    if (scale < BLOCKS) {
        context.fillStyle = tone;
        context.fillRect(x, y, w, h);
        if (isSeveral && node.by_status)
            stateBar(context, node, theme, { x, y: y + h * 0.6, w, h: h * 0.4 });
        context.globalAlpha = 1;
        return;
    }
    // The border is a larger box below: two rectangles cost less than a stroke.
    const border = 1 / scale;
    if (isSeveral && node.kind !== "group") {
        context.fillStyle = theme.control;
        context.fillRect(x + 4, y + 4, w, h);
        context.fillStyle = theme.surface;
        context.fillRect(x + 4 + border, y + 4 + border, w - 2 * border, h - 2 * border);
    }
    context.fillStyle = node.status === "deployed" ? theme.control : tone;
    context.fillRect(x, y, w, h);
    context.fillStyle = theme.bg;
    context.fillRect(x + border, y + border, w - 2 * border, h - 2 * border);
    context.globalAlpha *= 0.1;
    context.fillStyle = tone;
    context.fillRect(x + border, y + border, w - 2 * border, h - 2 * border);
    context.globalAlpha = gone.has(keyOf(node)) ? 0.4 : 1;

    const { name, detail } = titleOf(node, graph.group);
    const size = Math.max(13, TEXT_MIN / scale);
    const isFull = scale >= NAMES_ONLY;
    const left = x + 10;
    const top = isFull ? y + (node.kind === "group" ? 18 : 15) : y + Math.min(h, 44) / 2;
    icon(context, node.status, theme, left, top - size / 2 - 1, size + 2);
    context.textBaseline = "middle";
    context.fillStyle = theme.text;
    context.font = `600 ${size}px Inter, system-ui, sans-serif`;
    const textLeft = left + size + 8;
    context.fillText(fitted(context, name, x + w - 8 - textLeft), textLeft, top);
    if (isFull) {
        const small = Math.max(12, TEXT_MIN / scale);
        context.font = `400 ${small}px Inter, system-ui, sans-serif`;
        context.fillStyle = theme.muted;
        context.fillText(fitted(context, detail, x + w - 8 - textLeft), textLeft, top + 17);
    }
    if (isSeveral && node.by_status) {
        const isGroup = node.kind !== "siblings";
        const lower = isGroup ? Math.min(h, 60) : h;
        stateBar(context, node, theme, {
            x: x + (isGroup ? 10 : border),
            y: y + lower - (isGroup ? 12 : 4),
            w: w - (isGroup ? 20 : 2 * border),
            h: isGroup ? 4 : 3,
        });
    }
    for (const [index, cell] of (node.cells ?? []).entries()) {
        context.fillStyle = theme[statusTone(cell.status)];
        context.fillRect(
            x + CELLS.left + (index % CELLS.perRow) * CELLS.step,
            y + CELLS.top + Math.floor(index / CELLS.perRow) * CELLS.step,
            CELLS.size,
            CELLS.size,
        );
    }
    context.globalAlpha = 1;
}

/** The part of the drawing that a view shows. */
function visible({ camera, view }: Painting) {
    const left = -camera.x / camera.scale;
    const top = -camera.y / camera.scale;
    return { left, top, right: left + view.w / camera.scale, bottom: top + view.h / camera.scale };
}

/** Paints all of a view. `ratio` is the number of device pixels in a pixel. */
export function paint(context: CanvasRenderingContext2D, painting: Painting, ratio: number) {
    const { graph, camera, view, theme } = painting;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, view.w, view.h);
    context.setTransform(
        ratio * camera.scale,
        0,
        0,
        ratio * camera.scale,
        ratio * camera.x,
        ratio * camera.y,
    );
    const part = visible(painting);
    context.fillStyle = theme.control;
    for (const edge of graph.edges) {
        const [from, to] = [graph.nodes[edge.from], graph.nodes[edge.to]];
        if (!from || !to) continue;
        const isOutside =
            Math.max(from.x + from.w, to.x + to.w) < part.left ||
            Math.min(from.x, to.x) > part.right;
        if (!isOutside) line(context, edge, thicknessOf(edge) / camera.scale);
    }
    for (const node of graph.nodes) {
        const isOutside =
            node.x + node.w < part.left ||
            node.x > part.right ||
            node.y + node.h < part.top ||
            node.y > part.bottom;
        if (!isOutside) box(context, node, painting);
    }
}

/** What the pointer and the keyboard have marked. */
export type Marks = {
    hovered: number | null;
    selected: number | null;
    /** Nodes and edges before and after the hovered one. */
    related: { nodes: Set<number>; edges: Set<number> } | null;
};

/** Paints the layer above: marks of the pointer and the keyboard. */
export function paintMarks(
    context: CanvasRenderingContext2D,
    painting: Painting,
    marks: Marks,
    ratio: number,
) {
    const { graph, camera, view, theme } = painting;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, view.w, view.h);
    context.setTransform(
        ratio * camera.scale,
        0,
        0,
        ratio * camera.scale,
        ratio * camera.x,
        ratio * camera.y,
    );
    const outline = (index: number, width: number, colour: string) => {
        const node = graph.nodes[index];
        if (!node) return;
        const { x, y, w, h } = node;
        const t = width / camera.scale;
        context.fillStyle = colour;
        context.fillRect(x - t, y - t, w + 2 * t, t);
        context.fillRect(x - t, y + h, w + 2 * t, t);
        context.fillRect(x - t, y, t, h);
        context.fillRect(x + w, y, t, h);
    };
    if (marks.related) {
        context.fillStyle = theme.accent;
        for (const index of marks.related.edges) {
            const edge = graph.edges[index];
            if (edge) line(context, edge, Math.max(2, thicknessOf(edge)) / camera.scale);
        }
        for (const index of marks.related.nodes) outline(index, 1.5, theme.accent);
    }
    if (marks.hovered !== null) outline(marks.hovered, 2, theme.accent);
    if (marks.selected !== null) outline(marks.selected, 3, theme.accent);
}

/** Paints the whole drawing in a corner, with the visible part as a frame. */
export function paintMinimap(
    context: CanvasRenderingContext2D,
    painting: Painting,
    extent: Extent,
    ratio: number,
) {
    const { graph, theme, camera, view } = painting;
    const scale = minimapScale(graph.bounds, extent);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, extent.w, extent.h);
    for (const node of graph.nodes) {
        context.fillStyle = theme[statusTone(node.status)];
        context.fillRect(
            node.x * scale,
            node.y * scale,
            Math.max(1.5, node.w * scale),
            Math.max(1.5, node.h * scale),
        );
    }
    context.strokeStyle = theme.accent;
    context.lineWidth = 1.5;
    context.strokeRect(
        (-camera.x / camera.scale) * scale,
        (-camera.y / camera.scale) * scale,
        (view.w / camera.scale) * scale,
        (view.h / camera.scale) * scale,
    );
}

export function minimapScale(bounds: Extent, extent: Extent): number {
    return Math.min(extent.w / Math.max(1, bounds.w), extent.h / Math.max(1, bounds.h));
}
