// Compares texts in a worker, with a time limit; small ones at once.
import { diffLines, type Line } from "./diff";

const SMALL = 20_000;
const TIMEOUT_MS = 2000;

/** Calls back with the lines, or `null` if they cannot be compared in time. Returns a cancellation. */
export function diffInWorker(
    before: string,
    after: string,
    done: (lines: Line[] | null) => void,
): (() => void) | undefined {
    if (before.length + after.length < SMALL) {
        done(diffLines(before, after));
        return undefined;
    }
    const worker = new Worker(new URL("./diff-worker.ts", import.meta.url), { type: "module" });
    const end = (lines: Line[] | null) => {
        clearTimeout(timer);
        worker.terminate();
        done(lines);
    };
    const timer = setTimeout(() => end(null), TIMEOUT_MS);
    worker.onmessage = (message: MessageEvent<Line[] | null>) => end(message.data);
    worker.onerror = () => end(null);
    worker.postMessage({ before, after });
    return () => {
        clearTimeout(timer);
        worker.terminate();
    };
}
