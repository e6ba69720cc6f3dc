// Shapes of the states in a square of 16, for icons and for the graph: each state has one of its own.

export type Shape = {
    path: string;
    /** `cutout` is drawn in the colour of the background. */
    kind: "fill" | "stroke" | "cutout";
    dashed?: boolean;
};

const CIRCLE = "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0z";
const SQUARE = "M3.8 1.8h8.4a2 2 0 0 1 2 2v8.4a2 2 0 0 1-2 2H3.8a2 2 0 0 1-2-2V3.8a2 2 0 0 1 2-2z";
const stroke = (...paths: string[]): Shape[] =>
    paths.map((path) => ({ path, kind: "stroke" as const }));

const SHAPES: Record<string, Shape[]> = {
    deployed: [
        { path: "M15 8A7 7 0 1 1 1 8a7 7 0 0 1 14 0z", kind: "fill" },
        { path: "M4.8 8.2 7 10.4l4.2-4.6", kind: "cutout" },
    ],
    available: stroke(CIRCLE),
    deploying: [...stroke(CIRCLE), { path: "M8 2a6 6 0 0 1 0 12z", kind: "fill" }],
    failed: [
        { path: "M5.2 1h5.6L15 5.2v5.6L10.8 15H5.2L1 10.8V5.2z", kind: "fill" },
        { path: "m5.7 5.7 4.6 4.6m0-4.6-4.6 4.6", kind: "cutout" },
    ],
    unavailable: stroke(
        "M6.5 4.5 8 3a3.5 3.5 0 0 1 5 5l-1.5 1.5M9.5 11.5 8 13a3.5 3.5 0 0 1-5-5l1.5-1.5M2 2l12 12",
    ),
    skipped: stroke("M8 1.8 15 14H1z", "M8 6v3.6", "M8 11.8v.1"),
    non_compliant: stroke("m8 1 7 7-7 7-7-7z", "M5 8.6c1-1.6 2-1.6 3-.6s2 1 3-.6"),
    undefined: stroke(SQUARE, "M6.2 6.3c0-2.3 3.6-2.3 3.6 0 0 1.4-1.8 1.4-1.8 2.8M8 11.7v.1"),
    skipped_for_undefined: stroke(SQUARE, "M5.5 8h5v3.2h-5zM6.4 8V6.6a1.6 1.6 0 0 1 3.2 0V8"),
    orphaned: [{ path: CIRCLE, kind: "stroke", dashed: true }],
};

const OTHER = stroke(CIRCLE, "m4 12 8-8");

/** Shapes of a state. One of a newer server gets a shape of its own too. */
export function shapesOf(status: string): Shape[] {
    return SHAPES[status] ?? OTHER;
}
