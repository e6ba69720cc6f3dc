// The daily work: watch a deploy, find a cause, mend drift, roll back, pause, search, filter.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Browser } from "./browser.js";
import { PAGES } from "./pages.js";
import { CONTENT, Shop } from "./seed.js";
import { ADMIN, binary, Server, until } from "./server.js";

let server, shop, browser, page;
before(async () => {
    server = await Server.start();
    shop = await Shop.create(server);
    browser = await Browser.start();
    page = await browser.page();
    await browser.signIn(page, server);
});
after(async () => {
    await browser.stop();
    await server.stop();
});
const path = (url) => new URL(url).pathname + new URL(url).search;
const config = () => readFile(`${shop.directory}/shop.conf`, "utf8");

test("a pushed model appears and deploys while the page watches", async () => {
    await page.goto(shop.page());
    await page.getByRole("heading", { name: "No version yet" }).waitFor();
    await shop.push(shop.resources());
    // No reload: the events bring it.
    const matches = page.getByRole("region", { name: "Matches the model" });
    await matches.getByText("42", { exact: true }).waitFor();
    await page.getByText("v1 active").waitFor();
    await shop.settled();
});

test("a segment of a ring opens a table with the same count", async () => {
    await page.goto(shop.page());
    for (const ring of ["Matches the model", "Works"]) {
        const region = page.getByRole("region", { name: ring });
        await region.getByRole("link").first().waitFor();
        const links = await region.getByRole("link").all();
        const segments = await Promise.all(
            links.map(async (link) => [
                await link.getAttribute("href"),
                await link.getAttribute("title"),
            ]),
        );
        for (const [href, value] of segments) {
            await page.goto(server.url + href);
            await page.locator(`[data-total="${value}"]`).waitFor();
        }
        await page.goto(shop.page());
    }
});

test("a waiting resource shows its cause and source line without scrolling", async () => {
    await page.goto(`${shop.page()}/resources?status=skipped`);
    await page.locator(`[data-id="${shop.ids.last}"] a`).click();
    const cause = page.locator(".cause");
    await cause.waitFor();
    assert.match(await cause.textContent(), /nowhere|No such file/);
    const place = page.getByRole("region", { name: "Why is it so" }).getByText("main.cf:12");
    for (const one of [cause, place]) {
        const box = await one.boundingBox();
        assert.ok(box && box.y + box.height < 900, JSON.stringify(box));
    }
    // The time shown is the server's own.
    const why = await server.call(
        "GET",
        shop.path(`/resources/${encodeURIComponent(shop.ids.failing)}`),
    );
    const shown = await page.locator("[data-reason=timer]").textContent();
    const clock = await page.evaluate(
        (at) =>
            new Intl.DateTimeFormat("en-GB", {
                hour: "2-digit",
                minute: "2-digit",
                second: "2-digit",
            }).format(Date.parse(at)),
        why.next_run_at,
    );
    assert.ok(shown.includes(clock), `${shown} has ${clock}`);
});

test("a paused agent is named as the reason, and can be unpaused there", async () => {
    await page.goto(shop.page("/agents"));
    const row = page.locator("[data-agent=localhost]");
    await row.getByRole("button", { name: "Pause" }).click();
    await row.getByText("Paused").waitFor();
    await page.goto(shop.resource(shop.ids.waiting));
    const reason = page.locator("[data-reason=agent_paused]");
    await reason.getByText("localhost is paused", { exact: false }).waitFor();
    await reason.getByRole("button", { name: "Unpause" }).click();
    await reason.waitFor({ state: "detached" });
    const agent = await server.call("GET", shop.path("/agents/localhost"));
    assert.equal(agent.paused, false);
});

test("drift is repaired by a filter that states its count", async () => {
    // Otherwise the server heals it within a second.
    const policies = { value: { "*": "report" } };
    await server.call("PUT", shop.path("/settings/drift_policies"), policies);
    await writeFile(`${shop.directory}/shop.conf`, "edited by hand\n");
    await writeFile(`${shop.directory}/host-00.conf`, "edited by hand\n");
    await page.goto(`${shop.page("/resources")}?value=out-live/shop.conf`);
    await page.locator('[data-total="1"]').waitFor();
    await page.getByRole("button", { name: "Repair" }).click();
    await page.locator("dialog").getByRole("button", { name: "Repair 1 resource" }).click();
    await until("the file is repaired", async () => (await config()) === CONTENT);
    // Only the matches were touched.
    assert.equal(await readFile(`${shop.directory}/host-00.conf`, "utf8"), "edited by hand\n");
    await page.getByRole("button", { name: "Show" }).click();
    await page.getByText("Done", { exact: true }).waitFor();
    await page.goto(shop.resource(shop.ids.config));
    await page.getByText("edited by hand").first().waitFor();
});

test("a roll-back shows its changes before it can be confirmed", async () => {
    await shop.push(shop.resources(CONTENT.replace("option_7 = 7", "option_7 = seven"), 39));
    await until("version 2 is deployed", async () => (await config()).includes("seven"));
    await page.goto(shop.page("/versions"));
    await page.getByRole("button", { name: "Actions on version 1" }).click();
    await page.getByRole("menuitem", { name: "Roll back to this" }).click();
    const dialog = page.locator("dialog");
    await dialog.locator("[data-plan]").waitFor();
    assert.match(await dialog.locator("[data-plan]").textContent(), /create 1, change 1/);
    await dialog.getByText("option_7 = seven").waitFor();
    // Cancel has the focus, so Enter does no harm.
    assert.equal(await page.evaluate(() => document.activeElement?.textContent?.trim()), "Cancel");
    await dialog.getByRole("button", { name: "Roll back: create 1, change 1" }).click();
    await until("version 1 is back", async () => (await config()) === CONTENT);
    await page.locator("[data-version='3']").getByText("Active").waitFor();
});

test("the roll-back button is disabled until the changes are known", async () => {
    let release;
    const held = new Promise((resolve) => (release = resolve));
    await page.route("**/compare/**", async (route) => {
        await held;
        await route.continue();
    });
    await page.goto(shop.page("/versions/1"));
    await page.getByRole("button", { name: "Roll back to v1" }).click();
    const confirm = page.locator("dialog").getByRole("button", { name: /^Roll back/ });
    await confirm.waitFor();
    assert.equal(await confirm.isDisabled(), true);
    release();
    await page.locator("dialog [data-plan]").waitFor();
    await page.unroute("**/compare/**");
    await page.keyboard.press("Escape");
});

test("the counts of a dry run are those of the API, and what it cannot tell is apart", async () => {
    await page.goto(shop.page("/versions/3"));
    await page.getByRole("button", { name: "Dry run" }).click();
    await page.waitForURL(/dry-runs\//);
    const id = page.url().split("/").at(-1);
    const finished = await until("the dry run ends", async () => {
        const run = await server.call("GET", shop.path(`/versions/3/dry-runs/${id}`));
        return run.finished && run;
    });
    const sum = (...names) => names.reduce((all, name) => all + (finished.by_status[name] ?? 0), 0);
    const unknown = sum("agent_down", "undefined", "skipped_for_undefined", "failed");
    await page.locator(`[data-group=unchanged][data-count="${sum("unmodified")}"]`).waitFor();
    await page.locator(`[data-group=unknown][data-count="${unknown}"]`).waitFor();
    assert.ok(unknown >= 2, JSON.stringify(finished.by_status));
});

test("the overview says what waits, and which runs changed something", async () => {
    await page.goto(shop.page());
    const activity = await server.call("GET", shop.path("/activity"));
    await page.locator(`[data-waiting="${activity.waiting}"]`).waitFor();
    // What was skipped waits for the failing one, and the file of an unknown value for that.
    assert.deepEqual(activity.waits.map((wait) => wait.kind).toSorted(), [
        "undefined",
        "waiting_on",
    ]);
    await page.locator("[data-wait=waiting_on] a[title*=nowhere]").waitFor();
    const times = activity.timers.map((timer) => timer.at);
    await page.locator(`[data-timer="${times[0]}"]`).waitFor();
    await page.locator("[data-run]", { hasText: "shop.conf" }).first().waitFor();
    await page.getByRole("link", { name: "All runs" }).click();
    await page.getByLabel("Show").selectOption("bad");
    await page.waitForURL(/show=bad/);
    await page.locator("[data-run]", { hasText: "nowhere" }).first().waitFor();
    assert.equal(await page.locator("[data-run]", { hasText: "host-17" }).count(), 0);
});

test("the palette finds a resource by a part of its value", async () => {
    await page.goto(shop.page());
    await page.getByText("Needs attention").waitFor();
    await page.keyboard.press("Control+k");
    const begun = Date.now();
    await page.getByRole("combobox", { name: /^Search/ }).fill("host-17");
    const hit = page.getByRole("option", { name: /host-17\.conf/ });
    await hit.waitFor();
    console.log(`# palette: ${Date.now() - begun} ms with an unoptimized server`);
    await page.keyboard.press("Enter");
    await page.waitForURL(/host-17/);
});

test("reload, Back and a copied link restore the filter and the selection", async () => {
    await page.goto(shop.page("/resources"));
    await page.locator("[data-id]").first().waitFor();
    await page.getByLabel("Filter resources").fill("status:failed,skipped");
    await page.keyboard.press("Enter");
    await page.locator(`[data-id="${shop.ids.last}"]`).waitFor();
    await page.locator(`[data-id="${shop.ids.last}"] .state`).click();
    await page.getByRole("complementary", { name: /^Resource/ }).waitFor();
    const link = page.url();
    assert.match(link, /status=failed%2Cskipped&sel=/);
    await page.reload();
    await page.getByRole("complementary", { name: /^Resource/ }).waitFor();
    assert.equal(await page.getByLabel("Filter resources").inputValue(), "status:failed,skipped");
    await page
        .getByRole("complementary", { name: /^Resource/ })
        .getByRole("link", { name: "Open" })
        .click();
    await page.waitForURL(/\/resources\/std/);
    await page.goBack();
    await page.getByRole("complementary", { name: /^Resource/ }).waitFor();
    assert.equal(page.url(), link);
});

test("the table is worked by keyboard", async () => {
    await page.goto(`${shop.page("/resources")}?status=failed,skipped`);
    await page.locator("[data-id]").first().waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("x");
    await page.getByText("1 selected").waitFor();
    await page.keyboard.press("Space");
    await page.getByRole("complementary", { name: /^Resource/ }).waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/resources\/std/);
    await page.keyboard.press("g");
    await page.keyboard.press("v");
    await page.waitForURL(/\/versions$/);
});

test("rows that leave the filter stay in place until the change is applied", async () => {
    await page.goto(`${shop.page("/resources")}?status=deployed&value=host-`);
    await page.locator("[data-id]").first().waitFor();
    const order = () =>
        page.locator("[data-id]").evaluateAll((rows) => rows.map((row) => row.dataset.id));
    const before = await order();
    await page.locator("[data-id]").nth(3).hover();
    await shop.push(shop.resources(CONTENT, 38));
    await page.getByRole("button", { name: /changes?, apply/ }).waitFor();
    // The number of rows around the screen varies with its height; their places do not.
    const now = await order();
    const shared = Math.min(now.length, before.length);
    assert.ok(shared > 20, `${shared} rows`);
    assert.deepEqual(now.slice(0, shared), before.slice(0, shared));
    await page.keyboard.press("r");
    await page.getByRole("button", { name: /changes?, apply/ }).waitFor({ state: "detached" });
    await shop.settled();
});

test("deleting an environment needs its exact name", async () => {
    const other = await Shop.create(server, "scratch");
    await page.goto(other.page("/settings"));
    await page.getByRole("button", { name: "Delete environment" }).click();
    const confirm = page.locator("dialog").getByRole("button", { name: "Delete environment" });
    assert.equal(await confirm.isDisabled(), true);
    await page.getByLabel(/Type shop\/scratch/).fill("shop/scratc");
    assert.equal(await confirm.isDisabled(), true);
    await page.getByLabel(/Type shop\/scratch/).fill("shop/scratch");
    await confirm.click();
    await page.waitForURL(`${server.url}/`);
    await page.locator("[data-environment=scratch]").waitFor({ state: "detached" });
});

test("a setting is changed and reset", async () => {
    await page.goto(shop.page("/settings?name=auto_deploy"));
    const setting = page.locator("[data-setting=auto_deploy]");
    const current = await setting.locator("select").inputValue();
    await setting.locator("select").selectOption(current === "true" ? "false" : "true");
    await setting.getByRole("button", { name: "Save" }).click();
    await setting.getByRole("button", { name: "Reset" }).click();
    await setting.getByText("Default, not set").waitFor();
    assert.equal(await setting.locator("select").inputValue(), current);
});

test("the copied commands work", { timeout: 180_000 }, async () => {
    const run = promisify(execFile);
    const env = {
        ...process.env,
        HOME: server.directory,
        PATH: `${dirname(binary)}:${process.env.PATH}`,
        ORRERY_TOKEN: server.token,
    };
    const login = `printf %s "$PASSWORD" | orrery login --name ${ADMIN.name} ${server.url}`;
    await run("sh", ["-c", login], { env: { ...env, PASSWORD: ADMIN.password } });
    const seen = new Set();
    for (const one of await PAGES(server, shop)) {
        if (one.name === "gallery") continue;
        await page.goto(one.url);
        await page.locator("[data-command]").waitFor();
        // The name of the environment arrives with its data.
        await page.waitForFunction(
            () =>
                !/-e [0-9a-f]{8}-/.test(
                    document.querySelector("[data-command]")?.getAttribute("data-command") ?? "",
                ),
        );
        const command = await page.locator("[data-command]").getAttribute("data-command");
        if (seen.has(command)) continue;
        seen.add(command);
        const failed = await run("sh", ["-c", command.replace(/^curl /, "curl -sSf ")], {
            env,
            cwd: server.directory,
        }).then(
            () => null,
            // 2: some resources failed, which is the truth.
            (error) => (error.code === 2 ? null : error),
        );
        assert.equal(failed, null, `${one.name}: ${command}: ${failed?.stderr}`);
    }
    assert.ok(seen.size > 12, [...seen].join("\n"));
});

test("no request left the server, and no policy was violated", () => {
    assert.deepEqual(browser.problems, []);
    assert.equal(path(page.url()).startsWith("/"), true);
});
