// The documents of examples/webstack in the catalogue of a server.
import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";

const example = join(dirname(fileURLToPath(import.meta.url)), "../../examples/webstack");
const KINDS = {
    providers: "provider",
    hardwaretypes: "hardware",
    imagetypes: "image",
    services: "service",
    clustertemplates: "template",
};

export async function importExample(server) {
    const documents = [];
    for (const [directory, kind] of Object.entries(KINDS)) {
        for (const name of (await readdir(join(example, directory))).toSorted()) {
            const text = await readFile(join(example, directory, name), "utf8");
            documents.push({ kind, content: parse(text) });
        }
    }
    return server.call("POST", "/cluster-documents/apply", { documents });
}
