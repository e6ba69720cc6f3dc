// Debian's Chromium, headless, and checks that every journey makes: no request leaves the server, and
// the content security policy is never violated.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { ADMIN } from "./server.js";

const ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

export class Browser {
    /** Problems of all pages: requests elsewhere, policy violations, uncaught errors. */
    problems = [];

    static async start({ viewport = { width: 1440, height: 900 }, theme = "light" } = {}) {
        const browser = new Browser();
        browser.profile = await mkdtemp(join(tmpdir(), "orrery-chromium-"));
        browser.context = await chromium.launchPersistentContext(browser.profile, {
            executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
            headless: true,
            args: ARGUMENTS,
            viewport,
            colorScheme: theme,
            reducedMotion: "reduce",
        });
        browser.context.setDefaultTimeout(20_000);
        await browser.context.addInitScript(() => {
            document.addEventListener("securitypolicyviolation", (event) =>
                console.error(`policy violation: ${event.violatedDirective} ${event.blockedURI}`),
            );
        });
        browser.context.on("page", (page) => browser.watch(page));
        for (const page of browser.context.pages()) browser.watch(page);
        return browser;
    }

    watch(page) {
        page.on("pageerror", (error) => this.problems.push(`error: ${error.stack ?? error}`));
        page.on("console", (message) => {
            if (/policy/i.test(message.text())) this.problems.push(message.text());
        });
        page.on("request", (request) => {
            const { protocol, hostname } = new URL(request.url());
            if (protocol.startsWith("http") && hostname !== "127.0.0.1")
                this.problems.push(`request to ${request.url()}`);
        });
    }

    async page() {
        return this.context.newPage();
    }

    /** Signs in with the form. */
    async signIn(page, server, { name, password } = ADMIN) {
        await page.goto(`${server.url}/login`);
        await page.getByLabel("Name").fill(name);
        await page.getByLabel("Password").fill(password);
        await page.getByRole("button", { name: "Sign in" }).click();
        await page.getByRole("heading", { name: "Environments" }).waitFor();
    }

    async stop() {
        await this.context.close();
        await rm(this.profile, { recursive: true, force: true });
    }
}
