// A long operation: its progress by outcome, its caller, its cancellation; the state of the server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Browser } from "./browser.js";
import { Shop } from "./seed.js";
import { Server, until } from "./server.js";

let server, shop, browser, page;
const scripted = (name, attributes) => ({
    id: `std::testing::ScriptedResource[localhost,name=${name}]`,
    attributes,
    requires: [],
});
before(async () => {
    server = await Server.start();
    shop = await Shop.create(server);
    browser = await Browser.start();
    page = await browser.page();
    await browser.signIn(page, server);
    await server.call("POST", shop.path("/versions"), {
        resources: [
            scripted("a-quick", { outcome: "changed" }),
            scripted("b-slow", { delay_ms: 600_000 }),
            scripted("c-queued", {}),
        ],
        local_agents: ["localhost"],
        release: false,
    });
    await server.call("POST", shop.path("/versions/1/release"), { deploy: true });
});
after(async () => {
    await browser.stop();
    await server.stop();
});

test("an operation in progress is shown on the first page, with its caller", async () => {
    await page.goto(server.url);
    const running = page.getByRole("region", { name: "Running now" });
    await running.getByText("shop/live").waitFor();
    await running.getByText("by admin", { exact: false }).waitFor();
    await running.getByRole("link", { name: /Deploy/ }).click();
    await page.getByText("requested by admin").waitFor();
    await page.locator("[data-done='1'][data-of='3']").waitFor();
    await page.locator("[data-outcome=changed]").waitFor();
});

test("cancelling says what stays, and ends the operation", async () => {
    await page.getByRole("button", { name: "Cancel" }).click();
    const dialog = page.locator("dialog");
    await dialog.getByText("1 resource has run").waitFor();
    await dialog.getByRole("button", { name: "Withdraw 2 resources" }).click();
    await page.getByText("Done", { exact: true }).waitFor();
    const { items } = await server.call("GET", shop.path("/operations"));
    const deploy = items.find((one) => one.kind === "deploy");
    assert.deepEqual(
        [deploy.outcome.deployed, deploy.outcome.cancelled, deploy.outcome.withdrawn],
        [1, 1, 1],
    );
    assert.equal(await page.getByRole("button", { name: "Cancel" }).count(), 0);
    await until("nothing is open", async () => {
        const open = await server.call("GET", "/operations?open=true");
        return open.items.length === 0;
    });
});

test("the page of the server names processes, engines and maintenance", async () => {
    await page.goto(`${server.url}/admin/server`);
    await page.locator("[data-engine=live]").getByText("Running").waitFor();
    await page.locator("[data-engine=live]").getByText("v1").waitFor();
    await page.locator(`[data-process="${server.process.pid}"]`).getByText("Answers").waitFor();
    await page.locator("[data-task]").first().waitFor();
    await page.locator("[data-gateway]").first().waitFor();
});

test("no request left the server, and no policy was violated", () => {
    assert.deepEqual(browser.problems, []);
});
