// Compares texts outside the page's thread.
import { diffLines } from "./diff";

self.onmessage = (message: MessageEvent<{ before: string; after: string }>) => {
    self.postMessage(diffLines(message.data.before, message.data.after));
};
