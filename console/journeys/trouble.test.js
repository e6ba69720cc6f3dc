// Roles, expired sessions, many tabs, and a server that dies while the page watches.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Browser } from "./browser.js";
import { Shop } from "./seed.js";
import { Server, until } from "./server.js";

let server, shop, browser, page;
const VIEWER = { name: "vera", password: "Correct-horse-2" };
before(async () => {
    server = await Server.start();
    shop = await Shop.create(server);
    await shop.push(shop.resources());
    await shop.settled();
    await server.call("POST", "/users", VIEWER);
    await server.call("POST", shop.path("/role-assignments"), {
        user: VIEWER.name,
        role: "viewer",
    });
    browser = await Browser.start();
    page = await browser.page();
    await browser.signIn(page, server, VIEWER);
});
after(async () => {
    await browser.stop();
    await server.stop();
});

test("a viewer is offered no action, and a forged request is refused", async () => {
    const forbidden =
        /^(Deploy|Repair|Halt|Pause|Unpause|Invite|Release|Roll back|Dry run|Delete|Revoke|Create environment|Set |Save|Reset|Recompile|Refresh)/;
    for (const path of [
        "",
        "/resources?status=failed",
        `/resources/${encodeURIComponent(shop.ids.failing)}`,
        "/versions",
        "/versions/1",
        "/agents",
        "/compiles",
        "/data/parameters",
        "/data/secrets",
        "/settings",
    ]) {
        await page.goto(shop.page(path));
        await page.locator("main h1").waitFor();
        await page.waitForFunction(() => !document.querySelector("[aria-label=Loading]"));
        const names = await page.getByRole("button").allTextContents();
        assert.deepEqual(
            names.map((name) => name.trim()).filter((name) => forbidden.test(name)),
            [],
            path,
        );
    }
    const status = await page.evaluate(
        (url) =>
            fetch(url, { method: "POST", headers: { "X-Orrery-Client": "console" } }).then(
                (answer) => answer.status,
            ),
        `/api/v1${shop.path("/halt")}`,
    );
    assert.equal(status, 403);
});

test("an expired session gets an overlay, and the page is then as it was", async () => {
    await page.goto(`${shop.page("/resources")}?status=failed,skipped`);
    await page.locator(`[data-id="${shop.ids.last}"]`).waitFor();
    await browser.context.clearCookies();
    // Without a pointer: a live update may bring the overlay first.
    await page.locator(`[data-id="${shop.ids.last}"] .state`).dispatchEvent("click");
    const overlay = page.getByRole("dialog", { name: "Your session has ended" });
    await overlay.getByLabel("Password").fill(VIEWER.password);
    await overlay.getByRole("button", { name: "Sign in" }).click();
    await overlay.waitFor({ state: "detached" });
    await page.getByText("Root cause").waitFor();
    assert.match(page.url(), /status=failed%2Cskipped|status=failed,skipped/);
});

test("ten tabs hold one event stream, and the next one takes over", async () => {
    const streams = new Set();
    const watch = (tab) => {
        tab.on(
            "request",
            (request) => request.url().endsWith("/api/v1/events") && streams.add(request),
        );
        for (const end of ["requestfinished", "requestfailed"])
            tab.on(end, (request) => streams.delete(request));
    };
    await page.close();
    const tabs = [];
    for (let count = 0; count < 10; count += 1) {
        const tab = await browser.page();
        watch(tab);
        await tab.goto(shop.page("/agents"));
        await tab.locator("[data-agent=localhost]").waitFor();
        tabs.push(tab);
    }
    assert.equal(streams.size, 1);
    const [first, ...rest] = tabs;
    await first.close();
    streams.clear();
    await server.call("POST", shop.path("/agents/localhost/pause"));
    page = rest.at(-1);
    await page.bringToFront();
    await page.locator("[data-agent=localhost]").getByText("Paused").waitFor();
    await server.call("POST", shop.path("/agents/localhost/unpause"));
    await page.locator("[data-agent=localhost]").getByText("Paused").waitFor({ state: "detached" });
    for (const tab of rest.slice(0, -1)) await tab.close();
});

test("a page recovers by itself from a crash of the server", async () => {
    await page.bringToFront();
    await page.goto(shop.page("/agents"));
    const row = page.locator("[data-agent=localhost]");
    await row.waitFor();
    await page.evaluate(() => (window.isSamePage = true));
    await server.kill("SIGKILL");
    await page.getByText("The connection to the server is broken", { exact: false }).waitFor();
    await server.run();
    const begun = Date.now();
    // After a long start of the server, the next attempt is up to 30 s away.
    await page
        .getByText("The connection to the server is broken", { exact: false })
        .waitFor({ state: "detached", timeout: 45_000 });
    console.log(`# recovered ${Date.now() - begun} ms after the server was back`);
    await until("the API works", () =>
        server.call("POST", shop.path("/agents/localhost/pause")).then(
            () => true,
            () => false,
        ),
    );
    await row.getByText("Paused").waitFor();
    assert.equal(await page.evaluate(() => window.isSamePage), true, "without a reload");
});

test("no request left the server, and no policy was violated", () => {
    assert.deepEqual(browser.problems, []);
});
