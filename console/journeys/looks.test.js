// Every main page in both themes: accessibility, narrow screens, size of text, layout shift.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { Browser } from "./browser.js";
import { PAGES } from "./pages.js";
import { CONTENT, Shop } from "./seed.js";
import { Server } from "./server.js";

let server, shop, pages;
before(async () => {
    server = await Server.start();
    shop = await Shop.create(server);
    await shop.push(shop.resources());
    await shop.settled();
    await shop.push(shop.resources(CONTENT.replace("option_7 = 7", "option_7 = seven")));
    await shop.settled();
    await server.call("PUT", shop.path("/parameters/domain"), {
        value: "example.org",
        source: "user",
    });
    pages = await PAGES(server, shop);
});
after(() => server.stop());

for (const theme of ["light", "dark"]) {
    test(`axe-core finds nothing serious, ${theme}`, { timeout: 240_000 }, async () => {
        const source = await readFile(
            createRequire(import.meta.url).resolve("axe-core/axe.min.js"),
            "utf8",
        );
        const browser = await Browser.start({ theme });
        try {
            const page = await browser.page();
            await browser.signIn(page, server);
            const found = [];
            for (const one of pages) {
                await page.goto(one.url);
                await one.ready(page);
                await page.evaluate(source);
                const { violations } = await page.evaluate(() =>
                    globalThis.axe.run(document, { resultTypes: ["violations"] }),
                );
                for (const violation of violations) {
                    if (!["serious", "critical"].includes(violation.impact)) continue;
                    const nodes = violation.nodes
                        .slice(0, 3)
                        .map((node) => `${node.target}: ${node.any[0]?.message ?? ""}`);
                    found.push(`${one.name}: ${violation.id}: ${nodes.join("; ")}`);
                }
            }
            assert.deepEqual(found, []);
            assert.deepEqual(browser.problems, []);
        } finally {
            await browser.stop();
        }
    });
}

test(
    "at 360 px nothing scrolls sideways, and no text is below 12 px",
    { timeout: 120_000 },
    async () => {
        const browser = await Browser.start({ viewport: { width: 360, height: 780 } });
        try {
            const page = await browser.page();
            await browser.signIn(page, server);
            const found = [];
            for (const one of pages) {
                await page.goto(one.url);
                await one.ready(page);
                const wide = await page.evaluate(
                    () => document.documentElement.scrollWidth - window.innerWidth,
                );
                if (wide > 0) found.push(`${one.name}: ${wide} px too wide`);
                const small = await page.evaluate(() => {
                    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
                    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
                        const size = Number.parseFloat(
                            getComputedStyle(node.parentElement).fontSize,
                        );
                        if (node.textContent.trim() && size < 12 && node.parentElement.offsetParent)
                            return node.textContent;
                    }
                    return null;
                });
                if (small) found.push(`${one.name}: ${small} is too small`);
            }
            assert.deepEqual(found, []);
        } finally {
            await browser.stop();
        }
    },
);

test("pages do not shift while they load", { timeout: 120_000 }, async () => {
    const browser = await Browser.start();
    try {
        const page = await browser.page();
        await browser.signIn(page, server);
        await page.addInitScript(() => {
            window.shift = 0;
            new PerformanceObserver((list) => {
                for (const entry of list.getEntries())
                    if (!entry.hadRecentInput) window.shift += entry.value;
            }).observe({ type: "layout-shift", buffered: true });
        });
        const shifts = [];
        for (const one of pages.filter((page) =>
            ["home", "overview", "resources", "resource-why", "versions"].includes(page.name),
        )) {
            await page.goto(one.url);
            await one.ready(page);
            shifts.push([one.name, await page.evaluate(() => window.shift)]);
        }
        console.log(
            `# layout shift: ${shifts.map(([name, shift]) => `${name} ${shift.toFixed(3)}`).join(", ")}`,
        );
        for (const [name, shift] of shifts) assert.ok(shift < 0.02, `${name}: ${shift}`);
    } finally {
        await browser.stop();
    }
});
