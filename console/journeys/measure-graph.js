// Measures the graph: opening with 10,000 resources, work per frame of pan and zoom with 500 nodes and
// 1,500 edges. `node journeys/measure-graph.js` prints the figures; they depend on the machine.
import { loadavg } from "node:os";
import { Browser } from "./browser.js";
import { Shop } from "./seed.js";
import { Server } from "./server.js";

const percentile = (values, part) => {
    const sorted = values.toSorted((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN;
};
const figures = (values) =>
    `median ${percentile(values, 0.5).toFixed(1)}, 95 % ${percentile(values, 0.95).toFixed(1)}, ` +
    `largest ${Math.max(...values).toFixed(1)} ms of ${values.length}`;

const resource = (agent, name, requires, set) => ({
    id: `std::File[${agent},path=/srv/${name}]`,
    attributes: { content: name, mode: 644, path: `/srv/${name}`, purged: false },
    requires,
    ...(set ? { set } : {}),
});

/** 10,000 resources of 100 machines in chains of ten. */
function many() {
    const resources = [];
    for (let machine = 0; machine < 100; machine += 1) {
        for (let index = 0; index < 100; index += 1) {
            const before = index % 10 === 0 ? [] : [resources.at(-1).id];
            resources.push(
                resource(`m${machine}`, `${machine}/${index}`, before, `set-${machine % 20}`),
            );
        }
    }
    return resources;
}

/** 500 resources in ten levels, each with three requirements of the level before: 1,350 edges. */
function dense() {
    const resources = [];
    for (let index = 0; index < 500; index += 1) {
        const [level, place] = [Math.floor(index / 50), index % 50];
        const requires =
            level === 0
                ? []
                : [0, 7, 19].map((jump) => resources[(level - 1) * 50 + ((place + jump) % 50)].id);
        if (level > 1) requires.push(resources[(level - 2) * 50 + place].id);
        resources.push(resource("dense", String(index).padStart(3, "0"), requires));
    }
    return resources;
}

const server = await Server.start();
const browser = await Browser.start();
try {
    const page = await browser.page();
    await browser.signIn(page, server);
    await page.addInitScript(() => {
        window.frames_ = [];
        const request = window.requestAnimationFrame.bind(window);
        window.requestAnimationFrame = (callback) =>
            request((at) => {
                const begun = performance.now();
                callback(at);
                window.frames_.push(performance.now() - begun);
            });
    });
    console.log(`load ${loadavg()[0].toFixed(1)}`);

    const large = await Shop.create(server, "large");
    const push = (shop, resources) =>
        server.call("POST", shop.path("/versions"), { resources, release: false });
    await push(large, many());
    for (const [name, query] of [
        ["groups", ""],
        ["groups by agent", "?group=agent"],
        ["resources, 300 of 10,000", "?group=none"],
    ]) {
        for (const state of ["first", "cached"]) {
            const begun = Date.now();
            await server.call("GET", large.path(`/graph${query}`));
            console.log(`10,000 resources, ${name}, API, ${state}: ${Date.now() - begun} ms`);
        }
        const begun = Date.now();
        await page.goto(large.page(`/graph${query}`));
        await page.locator("[data-shown]").waitFor();
        await page.locator("[data-nodes]").waitFor();
        console.log(`10,000 resources, ${name}, page open: ${Date.now() - begun} ms`);
        console.log(`  ${await page.locator("[data-shown]").textContent()}`);
    }

    const shop = await Shop.create(server, "dense");
    await push(shop, dense());
    await page.goto(shop.page("/graph?group=none&status=available"));
    await page.locator("[data-shown='300'], [data-shown='500']").waitFor();
    const graph = await server.call("GET", shop.path("/graph?group=none&limit=500"));
    console.log(
        `${graph.nodes.length} nodes, ${graph.edges.length} edges by the API with limit=500`,
    );
    await page.goto(shop.page("/graph?group=none&limit=500"));
    await page.locator("[data-nodes='500']").waitFor();
    const box = await page.locator("[data-nodes]").boundingBox();
    const middle = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
    const take = () => page.evaluate(() => window.frames_.splice(0));
    await page.mouse.move(middle.x, middle.y);
    // At the natural size, then far away: text or blocks of colour.
    for (const [zoom, delta] of [
        ["natural size", -60],
        ["far away", 60],
    ]) {
        for (let step = 0; step < 40; step += 1) await page.mouse.wheel(0, delta);
        await page.waitForTimeout(500);
        console.log(`zoom to ${zoom}, work per frame: ${figures(await take())}`);
        await page.mouse.down();
        for (let step = 0; step < 120; step += 1)
            await page.mouse.move(middle.x + step * 2, middle.y + Math.sin(step / 10) * 60);
        await page.mouse.up();
        await page.waitForTimeout(500);
        console.log(`pan at ${zoom}, work per frame: ${figures(await take())}`);
        await page.mouse.move(middle.x, middle.y);
    }
    console.log(`load ${loadavg()[0].toFixed(1)}`);
} finally {
    await browser.stop();
    await server.stop();
}
