// The dependency graph: what it draws and what it leaves out, keys, its twin as a list, live states.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Browser } from "./browser.js";
import { Shop } from "./seed.js";
import { Server, until } from "./server.js";

let server, shop, browser, page;
before(async () => {
    server = await Server.start();
    shop = await Shop.create(server);
    await shop.push(shop.resources());
    await shop.settled();
    browser = await Browser.start();
    page = await browser.page();
    await browser.signIn(page, server);
});
after(async () => {
    await browser.stop();
    await server.stop();
});

const frame = () => page.getByRole("application", { name: /^Dependency graph/ });
const selected = () => frame().getAttribute("data-selected");
const entries = () =>
    page.locator("[data-entry]").evaluateAll((all) => all.map((one) => one.ariaLabel));

test("the rail, the overview and a resource lead to the graph", async () => {
    await page.goto(shop.page());
    await page.getByRole("link", { name: "Open the graph" }).click();
    await frame().waitFor();
    await page.goto(shop.page("/resources"));
    await page.getByRole("navigation", { name: "Pages" }).getByTitle("Graph").click();
    await frame().waitFor();
    await page.goto(shop.resource(shop.ids.waiting));
    await page.getByRole("link", { name: "neighbours in the graph" }).click();
    await page.locator("[data-shown='3']").waitFor();
    assert.match(page.url(), /focus=/);
    // One level more has the same three: the failing one, it, and the last.
    await page.getByRole("button", { name: "More levels" }).click();
    await page.getByText("2 levels").waitFor();
});

test("every resource is drawn or counted as left out", async () => {
    const total = Object.values(await shop.counts()).reduce((sum, one) => sum + one, 0);
    await page.goto(shop.page("/graph"));
    await page.locator(`[data-shown="${total}"][data-left-out="0"]`).waitFor();
    const graph = await server.call("GET", shop.path("/graph"));
    const failed = graph.nodes.filter((node) => node.status === "failed");
    assert.deepEqual(
        failed.map((node) => node.id),
        [shop.ids.failing],
    );
    const few = await server.call("GET", shop.path("/graph?limit=2&group=none"));
    const sum = (counts) => Object.values(counts).reduce((all, one) => all + one, 0);
    assert.equal(sum(few.left_out.by_status) + 2, total);
});

test("arrow keys walk along the edges, Enter looks, f focuses", async () => {
    await page.goto(`${shop.page("/graph")}?value=conf&status=failed,skipped`);
    await page.locator("[data-shown='3']").waitFor();
    await frame().focus();
    await page.keyboard.press("ArrowRight");
    const seen = [await selected()];
    for (const _ of [1, 2]) {
        await page.keyboard.press("ArrowRight");
        seen.push(await selected());
    }
    for (const id of [shop.ids.waiting, shop.ids.last]) assert.ok(seen.includes(id), `${seen}`);
    await page.keyboard.press("Enter");
    await page.getByRole("complementary", { name: /^Resource/ }).waitFor();
    await page.getByText("Root cause").first().waitFor();
    await page.keyboard.press("Escape");
    await frame().focus();
    await page.keyboard.press("f");
    await page.getByText("Neighbours of std").waitFor();
    assert.match(page.url(), /focus=std/);
});

test("a click looks at a node, a double click focuses it", async () => {
    await page.goto(`${shop.page("/graph")}?status=failed`);
    await page.locator("[data-shown='1']").waitFor();
    const box = await frame().boundingBox();
    const middle = [box.x + box.width / 2, box.y + box.height / 2];
    await until("the node reacts", async () => {
        await page.mouse.click(...middle);
        return page.url().includes("sel=");
    });
    await page.getByRole("complementary", { name: /shop\.conf/ }).waitFor();
    await page.keyboard.press("Escape");
    await page.mouse.dblclick(...middle);
    await page.waitForURL(/focus=/);
});

test("the list reaches every node by keyboard", async () => {
    const graph = await server.call("GET", shop.path("/graph"));
    await page.goto(`${shop.page("/graph")}?view=list`);
    await page.locator("[data-entry]").first().waitFor();
    assert.equal((await entries()).length, graph.nodes.length);
    await page.locator("[data-entry]").first().focus();
    const reached = new Set();
    for (const _ of graph.nodes) {
        reached.add(await page.evaluate(() => document.activeElement?.getAttribute("aria-label")));
        await page.keyboard.press("ArrowDown");
    }
    assert.equal(reached.size, graph.nodes.length);
    // The failing one says so, and leads to its page.
    const failing = page.locator("[data-entry]", { hasText: "nowhere" });
    assert.match(await failing.getAttribute("aria-label"), /Failed/);
    await failing.press("Enter");
    await page.waitForURL(/resources\/std/);
});

test("groups open, and lead to their resources", async () => {
    await page.goto(`${shop.page("/graph")}?view=list&group=agent`);
    await page.getByRole("button", { name: /^localhost/ }).click();
    await page.waitForURL(/open=localhost/);
    const graph = await server.call("GET", shop.path("/graph?group=agent&open=localhost"));
    const opened = graph.nodes.find((node) => node.id === "localhost");
    assert.equal(opened.cells[0].id, shop.ids.failing, "the worst is first");
    await page.goto(`${shop.page("/graph")}?group=set&open=`);
    await page.locator("[data-shown]").waitFor();
});

test("states change in place, and a new layout waits until it is applied", async () => {
    await page.goto(`${shop.page("/graph")}?view=list`);
    const failing = page.locator("li", { hasText: "nowhere" });
    await failing.getByText("Failed").waitFor();
    const before = (await entries()).length;
    await server.call("POST", shop.path("/agents/localhost/pause"));
    // A change of the model: the state follows, the places stay.
    const resources = shop.resources();
    resources[0].attributes.mode = 700;
    await shop.push(resources);
    await page
        .locator("[data-entry][aria-label*='out-live, Directory'][aria-label*=pending]")
        .waitFor();
    assert.equal((await entries()).length, before);
    // A further resource changes the structure.
    const more = `std::File[localhost,path=${shop.directory}/more.conf]`;
    resources.push({
        ...resources[1],
        id: more,
        attributes: { ...resources[1].attributes, path: `${shop.directory}/more.conf` },
    });
    await shop.push(resources);
    const apply = page.getByRole("button", { name: /^Layout changed/ });
    await apply.waitFor();
    assert.equal((await entries()).length, before);
    await page.keyboard.press("r");
    await apply.waitFor({ state: "detached" });
    assert.ok((await entries()).some((one) => one.includes("more.conf")));
    await server.call("POST", shop.path("/agents/localhost/unpause"));
});

test("a phone has the list only", async () => {
    await page.setViewportSize({ width: 390, height: 844 });
    await page.goto(shop.page("/graph"));
    await page.locator("[data-entry]").first().waitFor();
    assert.equal(await frame().count(), 0);
    await page.setViewportSize({ width: 1440, height: 900 });
});

test("no request left the server, and no policy was violated", () => {
    assert.deepEqual(browser.problems, []);
});
