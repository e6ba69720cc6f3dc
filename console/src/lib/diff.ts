// Line differences (Myers), rows with folded context, and attributes that differ.

export type Line = { kind: "same" | "added" | "removed"; text: string; old?: number; new?: number };
export type Row = Line | { kind: "gap"; from: number; lines: Line[] };

/** Larger texts are not compared line by line. */
export const TEXT_MAX = 2_000_000;
const EDITS_MAX = 20_000;

function splitLines(text: string): string[] {
    const lines = text.split("\n");
    if (lines.at(-1) === "") lines.pop();
    return lines;
}

/** The shortest edit script; `null` if the texts differ too much. */
export function diffLines(before: string, after: string): Line[] | null {
    const a = splitLines(before);
    const b = splitLines(after);
    let start = 0;
    while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
    let tail = 0;
    while (
        tail < a.length - start &&
        tail < b.length - start &&
        a[a.length - 1 - tail] === b[b.length - 1 - tail]
    ) {
        tail += 1;
    }
    const middle = myers(a.slice(start, a.length - tail), b.slice(start, b.length - tail));
    if (!middle) return null;
    const same = (text: string): Line => ({ kind: "same", text });
    const lines = [
        ...a.slice(0, start).map(same),
        ...middle,
        ...a.slice(a.length - tail).map(same),
    ];
    let [old, fresh] = [1, 1];
    for (const line of lines) {
        if (line.kind !== "added") line.old = old++;
        if (line.kind !== "removed") line.new = fresh++;
    }
    return lines;
}

function myers(a: string[], b: string[]): Line[] | null {
    const max = Math.min(a.length + b.length, EDITS_MAX);
    const offset = max + 1;
    let frontier = new Int32Array(2 * max + 3);
    const trace: Int32Array[] = [];
    let work = 0;
    for (let edits = 0; edits <= max; edits += 1) {
        work += edits;
        // The trace needs memory of the square of the edits.
        if (work > 8_000_000) return null;
        trace.push(frontier.slice(offset - edits - 1, offset + edits + 2));
        for (let k = -edits; k <= edits; k += 2) {
            const below = frontier[offset + k - 1] ?? 0;
            const above = frontier[offset + k + 1] ?? 0;
            let x = k === -edits || (k !== edits && below < above) ? above : below + 1;
            let y = x - k;
            while (x < a.length && y < b.length && a[x] === b[y]) {
                x += 1;
                y += 1;
            }
            frontier[offset + k] = x;
            if (x >= a.length && y >= b.length) return backtrack(a, b, trace, edits);
        }
    }
    return null;
}

function backtrack(a: string[], b: string[], trace: Int32Array[], edits: number): Line[] {
    const lines: Line[] = [];
    let [x, y] = [a.length, b.length];
    for (let d = edits; d >= 0; d -= 1) {
        const frontier = trace[d] as Int32Array;
        const at = (k: number) => frontier[k + d + 1] ?? 0;
        const k = x - y;
        const previous = k === -d || (k !== d && at(k - 1) < at(k + 1)) ? k + 1 : k - 1;
        const px = d === 0 ? 0 : at(previous);
        const py = d === 0 ? 0 : px - previous;
        while (x > px && y > py) {
            x -= 1;
            y -= 1;
            lines.push({ kind: "same", text: a[x] as string });
        }
        if (d === 0) break;
        if (x === px) {
            y -= 1;
            lines.push({ kind: "added", text: b[y] as string });
        } else {
            x -= 1;
            lines.push({ kind: "removed", text: a[x] as string });
        }
    }
    return lines.reverse();
}

/** Folds unchanged lines away from changes. Every fold is a row. */
export function fold(lines: Line[], context = 3): Row[] {
    const near = new Uint8Array(lines.length);
    for (const [index, line] of lines.entries()) {
        if (line.kind === "same") continue;
        const end = Math.min(lines.length - 1, index + context);
        for (let i = Math.max(0, index - context); i <= end; i += 1) near[i] = 1;
    }
    const rows: Row[] = [];
    let gap: Line[] = [];
    const close = (index: number) => {
        // Folding a single line hides as much as it shows.
        if (gap.length === 1) rows.push(...gap);
        else if (gap.length > 1) rows.push({ kind: "gap", from: index - gap.length, lines: gap });
        gap = [];
    };
    for (const [index, line] of lines.entries()) {
        if (near[index]) {
            close(index);
            rows.push(line);
        } else gap.push(line);
    }
    close(lines.length);
    return rows;
}

/** JSON with sorted keys: their order has no meaning. */
export function canonical(value: unknown): unknown {
    if (Array.isArray(value)) return value.map(canonical);
    if (value === null || typeof value !== "object") return value;
    const entries = Object.entries(value as Record<string, unknown>);
    entries.sort(([a], [b]) => (a < b ? -1 : 1));
    return Object.fromEntries(entries.map(([key, inner]) => [key, canonical(inner)]));
}

export function isEqual(a: unknown, b: unknown): boolean {
    return JSON.stringify(canonical(a)) === JSON.stringify(canonical(b));
}

/** The text form of an attribute's value that is compared line by line. */
export function comparable(value: unknown): string {
    return typeof value === "string"
        ? value
        : (JSON.stringify(canonical(value), null, 2) ?? "null");
}

/** True if a value is best compared line by line. */
export function isMultiline(value: unknown): boolean {
    if (typeof value === "string") return value.includes("\n") || value.length > 80;
    return value !== null && typeof value === "object";
}
