// Screenshots of the main pages, light and dark, desktop and phone: `node journeys/images.js [DIRECTORY]`.
// Without a directory, a set for the documentation, into docs/images.
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Browser } from "./browser.js";
import { PAGES } from "./pages.js";
import { CONTENT, Shop } from "./seed.js";
import { Server, until } from "./server.js";

/** Images of the documentation: the sizes and themes of each page. */
const SET = {
    home: ["light-desktop", "dark-phone"],
    overview: ["light-desktop", "dark-desktop", "light-phone"],
    resources: ["light-desktop", "dark-phone"],
    "resource-why": ["dark-desktop", "light-phone"],
    "resource-diff": ["light-desktop"],
    graph: ["light-desktop", "dark-desktop"],
    versions: ["light-desktop"],
    compare: ["dark-desktop"],
    "dry-run": ["light-desktop"],
    operation: ["light-desktop", "dark-phone"],
    agents: ["light-desktop"],
    discovered: ["light-phone"],
    metrics: ["light-desktop", "dark-desktop", "light-phone"],
    settings: ["light-desktop"],
    catalog: ["light-desktop"],
    document: ["dark-desktop"],
    "cluster-new": ["light-desktop", "dark-phone"],
    "cluster-conflict": ["light-desktop"],
    server: ["light-desktop", "dark-phone"],
    audit: ["dark-desktop"],
};
/** Heights of the images in the README. */
const README = { overview: 700, "resource-why": 420 };
const isSet = process.argv[2] === undefined;
const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const target = process.argv[2] ?? join(root, "docs/images");
await mkdir(isSet ? join(target, "console") : target, { recursive: true });

const server = await Server.start();
const shop = await Shop.create(server);
await Shop.create(server, "test");
await shop.push(shop.resources());
await shop.settled();
await shop.push(shop.resources(CONTENT.replace("option_7 = 7", "option_7 = seven")), {
    message: "tune option 7",
    author: "bob",
    commit: "3f2c91ab0",
});
await shop.settled();
await server.call("PUT", shop.path("/parameters/domain"), { value: "example.org", source: "user" });
await server.call("PUT", shop.path("/secrets/db-password"), { value: "s3cret" });
await server.call("POST", "/tokens", {
    name: "ci",
    role: "viewer",
    environment: shop.id,
    days: 30,
});
const all = await PAGES(server, shop);
const pages = all.filter((one) => !isSet || one.name !== "operation");
if (isSet) {
    // A deploy of some handlers that takes long, for a progress that stands still.
    const slow = Array.from({ length: 12 }, (_, index) => ({
        id: `std::testing::ScriptedResource[localhost,name=host-${String(index).padStart(2, "0")}]`,
        attributes: index < 7 ? { outcome: "changed" } : { delay_ms: 600_000 },
        requires: [],
    }));
    const other = await Shop.create(server, "batch");
    await server.call("POST", other.path("/versions"), {
        resources: slow,
        local_agents: ["localhost"],
        release: false,
    });
    await server.call("POST", other.path("/versions/1/release"), { deploy: true });
    const operation = await until("some have run", async () => {
        const { items } = await server.call("GET", other.path("/operations"));
        return items.find((one) => one.kind === "deploy" && one.progress?.done >= 7);
    });
    pages.push({
        name: "operation",
        url: other.page(`/operations/${operation.id}`),
        ready: (page) => page.locator("[data-done]").waitFor(),
    });
    // Runs are sampled once a minute, a minute late.
    await until(
        "runs are sampled",
        async () => {
            const path = shop.path("/metrics?metrics=resource.run_time");
            const { metrics } = await server.call("GET", path);
            return Object.keys(metrics[0].values).length > 0;
        },
        200,
    );
}

/** Takes a picture, in the format of the name: WebP is less than half of PNG. */
async function take(browser, page, path, options = {}) {
    const image = await page.screenshot(options);
    if (path.endsWith(".png")) return writeFile(path, image);
    const converter = await browser.page();
    const text = await converter.evaluate(
        async (source) => {
            const picture = await createImageBitmap(await (await fetch(source)).blob());
            const canvas = new OffscreenCanvas(picture.width, picture.height);
            canvas.getContext("2d").drawImage(picture, 0, 0);
            const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.8 });
            const bytes = new Uint8Array(await blob.arrayBuffer());
            return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
        },
        `data:image/png;base64,${image.toString("base64")}`,
    );
    await converter.close();
    return writeFile(path, Buffer.from(text, "base64"));
}

const sizes = { desktop: { width: 1440, height: 900 }, phone: { width: 390, height: 844 } };
for (const theme of ["light", "dark"]) {
    for (const [size, viewport] of Object.entries(sizes)) {
        const browser = await Browser.start({ viewport, theme });
        const page = await browser.page();
        if (!isSet) {
            await page.goto(`${server.url}/login`);
            await page.getByRole("button", { name: "Sign in" }).waitFor();
            await take(browser, page, join(target, `${theme}-${size}-login.png`));
        }
        await browser.signIn(page, server);
        for (const one of pages) {
            const kind = `${theme}-${size}`;
            if (isSet && !SET[one.name]?.includes(kind)) continue;
            await page.goto(one.url);
            // The graph has no drawing on a phone, where its list is shown.
            await one.ready(page);
            await page.evaluate(() => document.fonts.ready);
            const path = isSet
                ? join(target, "console", `${one.name}-${kind}.webp`)
                : join(target, `${kind}-${one.name}.png`);
            await take(browser, page, path);
            if (
                isSet &&
                kind === { overview: "light-desktop", "resource-why": "dark-desktop" }[one.name]
            ) {
                // The README needs no empty space.
                const clip = { x: 0, y: 0, width: 1440, height: README[one.name] };
                await take(browser, page, join(target, `${one.name}.webp`), { clip });
            }
        }
        await browser.stop();
    }
}
await server.stop();
