// The life of a cluster on simulated machines: created, grown, restarted and deleted by a user.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Browser } from "./browser.js";
import { Server, until } from "./server.js";

let server, browser, page, project, cluster;
const VIEWER = { name: "vera", password: "Correct-horse-2" };
const service = (name, requires, actions) => ({
    name,
    dependencies: { runtime: { requires } },
    provisioner: {
        actions: Object.fromEntries(
            actions.map((action) => [
                action,
                { type: "shell", fields: { script: "run.sh", args: action } },
            ]),
        ),
    },
});
const ACTIONS = ["install", "configure", "start", "stop", "remove"];
before(async () => {
    server = await Server.start();
    const documents = [
        {
            kind: "provider",
            content: {
                name: "local",
                providertype: "sim",
                provisioner: { directory: join(server.directory, "journals") },
            },
        },
        { kind: "hardware", content: { name: "small", providermap: { local: { flavor: "s1" } } } },
        {
            kind: "image",
            content: {
                name: "debian",
                providermap: { local: { image: "debian-12", sshuser: "admin" } },
            },
        },
        { kind: "service", content: service("db", [], [...ACTIONS, "initialize"]) },
        { kind: "service", content: service("app", ["db"], ACTIONS) },
        {
            kind: "template",
            content: {
                name: "shop",
                defaults: { provider: "local", services: ["app", "db"] },
                constraints: {
                    size: { min: 2, max: 20 },
                    services: { db: { quantities: { min: 1, max: 1 } } },
                    layout: { cantcoexist: [["app", "db"]] },
                },
            },
        },
    ];
    await server.call("POST", "/cluster-documents/apply", { documents });
    project = (await server.call("POST", "/projects", { name: "shop" })).id;
    await server.call("POST", "/users", VIEWER);
    await server.call("POST", `/projects/${project}/role-assignments`, {
        user: VIEWER.name,
        role: "viewer",
    });
    browser = await Browser.start();
    page = await browser.page();
    await browser.signIn(page, server);
});
after(async () => {
    await browser.stop();
    await server.stop();
});
const status = (wanted) =>
    page.locator(`[data-cluster-status="${wanted}"]`).waitFor({ timeout: 90_000 });
const nodes = async () => (await server.call("GET", `/clusters/${cluster}/nodes`)).items.length;

test("a cluster is created from its preview", { timeout: 150_000 }, async () => {
    await page.goto(`${server.url}/clusters/new?template=shop&size=3&project=${project}`);
    await page.locator("[data-solved='3']").waitFor();
    await page.getByLabel("Name", { exact: true }).fill("shop-test");
    await page.getByRole("button", { name: "Create: 3 nodes" }).click();
    await page.waitForURL(/\/clusters\/[a-z0-9]+$/);
    cluster = page.url().split("/").at(-1);
    await status("active");
    assert.equal(await nodes(), 3);
    await page.locator("[data-group~=db][data-count='1']").waitFor();
    await page.locator("[data-group~=app][data-count='2']").waitFor();
});

test("growing shows its plan first, then adds the nodes", { timeout: 150_000 }, async () => {
    await page.getByRole("button", { name: "Grow or shrink" }).click();
    const dialog = page.locator("dialog");
    await dialog.getByLabel(/Number of nodes/).fill("5");
    await dialog.locator("[data-plan]").getByText("adds 2 nodes").waitFor();
    await dialog.locator("[data-state=added][data-count='2']").waitFor();
    assert.equal(await nodes(), 3, "a plan changes nothing");
    await dialog.getByRole("button", { name: /^Resize: adds 2 nodes/ }).click();
    await until("the nodes are there", async () => (await nodes()) === 5);
    await status("active");
    await page.getByRole("link", { name: /^Nodes/ }).click();
    await page.locator("[data-node]").nth(4).waitFor();
    await page.getByRole("link", { name: /^Operations/ }).click();
    await page.locator("[data-operation='2']").getByText("Resize").waitFor();
});

test("a viewer sees the cluster and is offered no operation", async () => {
    const other = await Browser.start();
    try {
        const viewer = await other.page();
        await other.signIn(viewer, server, VIEWER);
        await viewer.goto(`${server.url}/clusters`);
        await viewer.locator("[data-cluster=shop-test]").getByRole("link").click();
        await viewer.locator("[data-cluster-status]").waitFor();
        const names = await viewer.getByRole("button").allTextContents();
        assert.deepEqual(
            names.filter((name) => /Grow|Restart|Delete|Update|Stop/.test(name)),
            [],
        );
        assert.deepEqual(other.problems, []);
    } finally {
        await other.stop();
    }
});

test("deleting a cluster needs its exact name", { timeout: 150_000 }, async () => {
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    const dialog = page.locator("dialog");
    await dialog.locator("[data-plan]").getByText("removes 5 nodes").waitFor();
    const confirm = dialog.getByRole("button", { name: /^Delete/ });
    assert.equal(await confirm.isDisabled(), true);
    await dialog.getByLabel(/Type shop-test/).fill("shop-test");
    await confirm.click();
    await status("terminated");
    await page.goto(`${server.url}/clusters`);
    await page.getByRole("heading", { name: "No cluster yet" }).waitFor();
    await page.getByLabel("Show deleted ones").check();
    await page.locator("[data-cluster=shop-test][data-status=terminated]").waitFor();
});

test("no request left the server, and no policy was violated", () => {
    assert.deepEqual(browser.problems, []);
});
