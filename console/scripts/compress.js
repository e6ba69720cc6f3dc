// Compresses the build with Brotli and gzip, removes files of earlier builds, and checks the size
// of the first load.
import { readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const dist = join(dirname(fileURLToPath(import.meta.url)), "../dist");
const budget = 300_000;

const index = readFileSync(join(dist, "index.html"), "utf8");
const assets = join(dist, "assets");
const read = (name) => readFileSync(join(assets, name));
const isCompressed = (name) => name.endsWith(".br") || name.endsWith(".gz");
const isText = (name) => /\.(js|css|html|svg)$/.test(name);

// Follows the names in each file: what nothing refers to belongs to an earlier build.
const reachable = new Set();
const follow = (text) => {
    for (const [name] of text.matchAll(/[\w.-]+-[\w-]{8}\.(?:js|css|woff2)/g)) {
        if (reachable.has(name)) continue;
        reachable.add(name);
        try {
            if (isText(name)) follow(read(name).toString("utf8"));
        } catch {
            reachable.delete(name);
        }
    }
};
follow(index);
for (const name of readdirSync(assets)) {
    if (isCompressed(name) || !reachable.has(name)) rmSync(join(assets, name));
}

const sizes = new Map();
const compress = (path) => {
    const content = readFileSync(path);
    const brotli = brotliCompressSync(content, {
        params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_LGWIN]: 22 },
    });
    if (brotli.length < content.length) writeFileSync(`${path}.br`, brotli);
    const gzip = gzipSync(content, { level: 9 });
    if (gzip.length < content.length) writeFileSync(`${path}.gz`, gzip);
    return Math.min(brotli.length, content.length);
};
for (const directory of [dist, assets]) {
    for (const name of readdirSync(directory)) {
        const path = join(directory, name);
        if (!statSync(path).isFile() || isCompressed(name) || name.startsWith(".")) continue;
        sizes.set(name, isText(name) ? compress(path) : statSync(path).size);
    }
}

// The first load: the shell, its static imports, its style sheets, and the font of the body.
const first = new Set(["index.html", "theme.js", "favicon.svg"]);
const load = (name) => {
    if (first.has(name)) return;
    first.add(name);
    if (!name.endsWith(".js")) return;
    for (const match of read(name)
        .toString("utf8")
        .matchAll(/(?:from|import)\s*["']\.\/([\w.-]+\.js)["']/g)) {
        load(match[1]);
    }
};
for (const match of index.matchAll(/\/assets\/([\w.-]+\.(?:js|css))/g)) load(match[1]);
for (const name of reachable) if (name.startsWith("inter-latin-wght-normal-")) first.add(name);
const total = [...first].reduce((sum, name) => sum + (sizes.get(name) ?? 0), 0);
const all = [...sizes.values()].reduce((sum, size) => sum + size, 0);
console.log(
    `first load ${Math.round(total / 1000)} KB compressed, ${sizes.size} files, ${Math.round(all / 1000)} KB in total`,
);
if (total > budget) {
    console.error(`error: the first load is larger than ${budget / 1000} KB:`);
    for (const name of first) console.error(`  ${sizes.get(name)} ${name}`);
    process.exit(1);
}
