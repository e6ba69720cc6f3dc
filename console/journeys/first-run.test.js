// First run: the set-up link, the sign-in, and empty pages that show the next command.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Browser } from "./browser.js";
import { Server } from "./server.js";

let server, browser, page;
before(async () => {
    server = await Server.start({ withAdmin: false });
    browser = await Browser.start();
    page = await browser.page();
});
after(async () => {
    await browser.stop();
    await server.stop();
});

test("the set-up link leads to a signed-in home", async () => {
    await page.goto(server.link);
    assert.equal(new URL(page.url()).hash, "", "the token leaves the address at once");
    await page.getByLabel("Name").fill("ada");
    await page.locator("input[name=password]").fill("Correct-horse-7");
    await page.getByLabel("Repeat password").fill("Correct-horse-8");
    await page.getByRole("button", { name: "Create account" }).click();
    await page.getByText("The passwords differ.").waitFor();
    await page.getByLabel("Repeat password").fill("Correct-horse-7");
    await page.getByRole("button", { name: "Create account" }).click();
    await page.getByRole("heading", { name: "No environment yet" }).waitFor();
    assert.equal(new URL(page.url()).pathname, "/");
    assert.match(await page.locator("pre").first().textContent(), /orrery environment create/);
});

test("an environment is created in the browser, and its empty pages show commands", async () => {
    await page.getByRole("button", { name: "Create environment" }).first().click();
    await page.getByLabel("Project").fill("shop");
    await page.getByLabel("Name", { exact: true }).fill("live");
    await page.locator("dialog").getByRole("button", { name: "Create environment" }).click();
    await page.getByRole("heading", { name: "No version yet" }).waitFor();
    const base = page.url();
    for (const [path, command] of [
        ["", "orrery deploy"],
        ["/resources", "orrery deploy"],
        ["/versions", "orrery export"],
        ["/operations", "orrery repair"],
        ["/agents", "orrery deploy"],
        ["/compiles", "orrery environment update"],
        ["/data/parameters", "orrery param set"],
        ["/data/facts", "orrery facts"],
        ["/data/secrets", "orrery secret set"],
        ["/notifications", "orrery status"],
    ]) {
        await page.goto(base + path);
        const text = await page.locator("main pre").first().textContent();
        assert.ok(text.includes(command), `${path}: ${text}`);
    }
});

test("a wrong password gets one message, and the name is kept", async () => {
    await page.getByRole("button", { name: /^Account/ }).click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await page.getByRole("button", { name: "Sign in" }).waitFor();
    await page.getByLabel("Name").fill("ada");
    await page.getByLabel("Password").fill("wrong");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("Name or password is wrong.").waitFor();
    assert.equal(await page.getByLabel("Name").inputValue(), "ada");
    assert.equal(await page.getByLabel("Password").inputValue(), "");
    assert.ok(
        await page.getByLabel("Password").evaluate((field) => field === document.activeElement),
    );
});

test("a page that needs a session is shown after the sign-in", async () => {
    await page.goto(`${server.url}/admin/users?x=1`);
    await page.waitForURL(/\/login\?next=/);
    await page.getByLabel("Name").fill("ada");
    await page.getByLabel("Password").fill("Correct-horse-7");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.waitForURL(`${server.url}/admin/users?x=1`);
    await page.goto(`${server.url}/login?next=//elsewhere.example`);
    await page.waitForURL(`${server.url}/`);
});

test("no request left the server, and no policy was violated", () => {
    assert.deepEqual(browser.problems, []);
});
