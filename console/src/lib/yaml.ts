// YAML of documents: text for the editor, values for the API, lines of JSON pointers. Loaded with the
// editor only.
import {
    Document,
    isMap,
    isScalar,
    isSeq,
    LineCounter,
    parseDocument,
    visit,
    type Node,
} from "yaml";

export type Parsed =
    | { value: unknown; lineOf: (pointer: string) => number | null }
    | { error: string; line: number | null };

/** Reads one document. */
export function parseYaml(text: string): Parsed {
    const counter = new LineCounter();
    const document = parseDocument(text, { lineCounter: counter, prettyErrors: false });
    const [error] = document.errors;
    if (error) return { error: error.message, line: counter.linePos(error.pos[0]).line };
    const value: unknown = document.toJS();
    if (value === null || typeof value !== "object" || Array.isArray(value))
        return { error: "a document is a mapping, such as `name: web`", line: 1 };
    return {
        value,
        lineOf(pointer) {
            let node: unknown = document.contents;
            let line: number | null = 1;
            for (const part of pointer.split("/").slice(1)) {
                const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
                if (isMap(node)) {
                    const pair = node.items.find((one) => String(one.key) === key);
                    const start = (pair?.key as Node | undefined)?.range?.[0];
                    if (start === undefined) break;
                    line = counter.linePos(start).line;
                    node = pair?.value;
                } else if (isSeq(node)) {
                    node = node.items[Number(key)];
                    const start = (node as Node | undefined)?.range?.[0];
                    if (start === undefined) break;
                    line = counter.linePos(start).line;
                } else break;
            }
            return line;
        },
    };
}

/** Writes a document: short lists and mappings in one line. */
export function toYaml(value: unknown): string {
    const document = new Document(value);
    visit(document, {
        Seq: (_, seq) => {
            seq.flow = seq.items.every((item) => isScalar(item));
        },
        Map: (key, map, path) => {
            const isShort = map.items.length <= 3 && map.items.every((one) => isScalar(one.value));
            map.flow = isShort && path.length > 1 && (key === "value" || typeof key === "number");
        },
    });
    return document.toString({ lineWidth: 100, flowCollectionPadding: false });
}
