// Clusters: the catalogue, a preview that follows its inputs, documents that two people edit.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Browser } from "./browser.js";
import { importExample } from "./documents.js";
import { Server } from "./server.js";

let server, browser, page;
const VIEWER = { name: "vera", password: "Correct-horse-2" };
before(async () => {
    server = await Server.start();
    await importExample(server);
    await server.call("POST", "/users", VIEWER);
    await server.call("POST", "/role-assignments", { user: VIEWER.name, role: "viewer" });
    browser = await Browser.start();
    page = await browser.page();
    await browser.signIn(page, server);
});
after(async () => {
    await browser.stop();
    await server.stop();
});
const solved = (size) => page.locator(`[data-solved="${size}"]`);

test("a template of the catalogue is previewed", async () => {
    await page.goto(`${server.url}/catalog/template`);
    const card = page.locator("[data-template=webstack]");
    await card.getByText("3 to 50 nodes").waitFor();
    await card.getByRole("link", { name: "Preview a cluster" }).click();
    await page.waitForURL(/\/clusters\/new\?template=webstack/);
    // The smallest size that has a layout: the template permits 3, its rules do not.
    await solved(4).waitFor();
    for (const service of ["nginx", "app", "postgresql"]) {
        await page.locator(`[data-group~="${service}"]`).first().waitFor();
    }
});

test("a new size is drawn, with the counts of the API", async () => {
    const begun = Date.now();
    await page.getByLabel("Size", { exact: true }).first().fill("9");
    await solved(9).waitFor();
    console.log(`# a new size: ${Date.now() - begun} ms with an unoptimized server`);
    const answer = await server.call("POST", "/cluster-documents/solve", {
        template: "webstack",
        size: 9,
    });
    const expected = answer.layout.map((group) => group.count).toSorted();
    const drawn = await page
        .locator("[data-group]")
        .evaluateAll((groups) => groups.map((group) => Number(group.dataset.count)).toSorted());
    assert.deepEqual(drawn, expected);
    assert.match(page.url(), /size=9/);
    await page.getByRole("button", { name: "Show the plan" }).click();
    const grid = page.getByRole("table", { name: "Plan by stages" });
    await grid.waitFor();
    assert.equal(Number(await grid.getAttribute("data-stages")), answer.plan.stages.length);
    await grid.getByText("start nginx").first().waitFor();
});

test("an impossible size names the rules and offers one that fits", async () => {
    const size = page.getByLabel("Size", { exact: true }).first();
    await size.fill("3");
    const rules = page.locator("[data-conflict='3']");
    await rules.getByText("app, nginx never share a node", { exact: true }).waitFor();
    await rules.getByText("/constraints/layout/cantcoexist/0").waitFor();
    await rules.getByRole("button", { name: "Size 4" }).click();
    await solved(4).waitFor();
    // Beyond the limits of the template.
    await size.fill("60");
    const limit = page.locator("[data-conflict='60']");
    await limit.getByText("at most 50", { exact: false }).waitFor();
    await limit.getByRole("button", { name: "Size 50" }).click();
    await solved(50).waitFor();
    assert.equal(await page.locator("[data-conflict]").count(), 0);
});

test("growing shows kept and new nodes apart", async () => {
    await page.goto(`${server.url}/clusters/new?template=webstack&size=5`);
    await solved(5).waitFor();
    await page.getByRole("button", { name: "Keep as a base" }).click();
    await page.getByLabel("Size", { exact: true }).first().fill("8");
    await solved(8).waitFor();
    const states = await page
        .locator("[data-group]")
        .evaluateAll((groups) =>
            groups.map((group) => [group.dataset.state, Number(group.dataset.count)]),
        );
    const sum = (state) =>
        states.filter(([one]) => one === state).reduce((all, [, number]) => all + number, 0);
    assert.deepEqual([sum("kept"), sum("added"), sum("removed")], [5, 3, 0]);
});

test("a mistake in a document is shown at its line, and nothing is saved", async () => {
    await page.goto(`${server.url}/catalog/template/webstack`);
    const editor = page.getByLabel("Document in YAML");
    const text = await editor.inputValue();
    await editor.fill(text.replace("nginx, app", "nginx, ap"));
    const changed = (await editor.inputValue()) !== text;
    if (!changed) await editor.fill(text.replace(/- app\b/, "- ap"));
    await page.getByRole("button", { name: "Check" }).click();
    const problem = page.locator("[data-problem-line]").first();
    await problem.waitFor();
    const line = Number(await problem.getAttribute("data-problem-line"));
    const lines = (await editor.inputValue()).split("\n");
    assert.match(lines.slice(Math.max(0, line - 2), line + 1).join("\n"), /ap\b/);
    assert.equal((await server.call("GET", "/cluster-documents/template/webstack")).revision, 1);
    await editor.fill("name: [");
    await page.getByRole("button", { name: "Check" }).click();
    await page.locator("[data-problem-line='1']").waitFor();
});

test("saving shows the difference, and over a newer revision it shows both", async () => {
    await page.goto(`${server.url}/catalog/template/webstack`);
    const editor = page.getByLabel("Document in YAML");
    const text = await editor.inputValue();
    await editor.fill(text.replace("label: Web stack", "label: Web shop"));
    await page.getByRole("button", { name: "Save" }).click();
    const dialog = page.locator("dialog");
    await dialog.getByText("label: Web shop").waitFor();
    await dialog.getByRole("button", { name: "Save revision 2" }).click();
    await dialog.waitFor({ state: "detached" });
    await page.getByText("template, revision 2").waitFor();
    // Another one saves while this text is being edited.
    const mine = await editor.inputValue();
    await editor.fill(mine.replace("label: Web shop", "label: Mine"));
    const theirs = (await server.call("GET", "/cluster-documents/template/webstack")).content;
    await server.call("PUT", "/cluster-documents/template/webstack", {
        ...theirs,
        label: "Theirs",
    });
    const conflict = page.locator("[data-conflict='3']");
    await conflict.getByText("label: Theirs").waitFor();
    await conflict.getByText("label: Mine").waitFor();
    assert.equal(await page.getByRole("button", { name: "Save" }).isDisabled(), true);
    const kept = await server.call("GET", "/cluster-documents/template/webstack");
    assert.equal(kept.content.label, "Theirs", "nothing was overwritten");
    await conflict.getByRole("button", { name: /Go on with mine/ }).click();
    await page.getByRole("button", { name: "Save" }).click();
    await dialog.getByRole("button", { name: "Save revision 4" }).click();
    await dialog.waitFor({ state: "detached" });
    await page.getByText("template, revision 4").waitFor();
    await page.getByRole("link", { name: /History/ }).click();
    await page.getByText("Revision 3").waitFor();
});

test("a viewer reads the catalogue, previews, and is offered no change", async () => {
    const other = await Browser.start();
    try {
        const viewer = await other.page();
        await other.signIn(viewer, server, VIEWER);
        await viewer.goto(`${server.url}/catalog/service/nginx`);
        const editor = viewer.getByLabel("Document in YAML");
        await editor.waitFor();
        assert.equal(await editor.getAttribute("readonly"), "");
        const names = await viewer.getByRole("button").allTextContents();
        assert.deepEqual(
            names.filter((name) => /Save|Check|Delete/.test(name)),
            [],
        );
        await viewer.goto(`${server.url}/clusters/new?template=webstack&size=4`);
        await viewer.locator("[data-solved='4']").waitFor();
        assert.deepEqual(other.problems, []);
    } finally {
        await other.stop();
    }
});

test("no request left the server, and no policy was violated", () => {
    assert.deepEqual(browser.problems, []);
});
