// Screenshots of the main pages, light and dark, desktop and phone: `node journeys/images.js DIRECTORY`.
// With `--readme`, only the two of the README, into docs/images.
import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Browser } from "./browser.js";
import { PAGES } from "./pages.js";
import { CONTENT, Shop } from "./seed.js";
import { Server } from "./server.js";

/** Heights of the images in the README. */
const README = { overview: 700, "resource-why": 420 };
const isReadme = process.argv.includes("--readme");
const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const target = isReadme ? join(root, "docs/images") : (process.argv[2] ?? "images");
await mkdir(target, { recursive: true });

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

const sizes = { desktop: { width: 1440, height: 900 }, phone: { width: 390, height: 844 } };
for (const theme of ["light", "dark"]) {
    for (const [size, viewport] of Object.entries(sizes)) {
        if (isReadme && size === "phone") continue;
        const browser = await Browser.start({ viewport, theme });
        const page = await browser.page();
        await page.goto(`${server.url}/login`);
        await page.getByRole("button", { name: "Sign in" }).waitFor();
        if (!isReadme) await page.screenshot({ path: join(target, `${theme}-${size}-login.png`) });
        await browser.signIn(page, server);
        for (const one of await PAGES(server, shop)) {
            if (
                isReadme &&
                !(theme === "light" ? one.name === "overview" : one.name === "resource-why")
            )
                continue;
            await page.goto(one.url);
            await one.ready(page);
            await page.screenshot({
                // The README needs no empty space.
                ...(isReadme
                    ? { clip: { x: 0, y: 0, width: 1440, height: README[one.name] } }
                    : {}),
                path: join(
                    target,
                    isReadme ? `${one.name}.png` : `${theme}-${size}-${one.name}.png`,
                ),
            });
        }
        await browser.stop();
    }
}
await server.stop();
