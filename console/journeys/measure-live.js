// Measures what needs a browser and time: frames and heap under a stream of events, blank rows while
// scrolling, a text of 5 MB. `node journeys/measure-live.js [WHAT...]` with `scroll`, `diff`, `events`,
// `heap`; the figures depend on the machine.
import { createServer, request as httpRequest } from "node:http";
import { loadavg } from "node:os";
import { Browser } from "./browser.js";
import { Shop } from "./seed.js";
import { Server } from "./server.js";

const wanted = process.argv.slice(2);
const isWanted = (name) => wanted.length === 0 || wanted.includes(name);
const load = () => `load ${loadavg()[0].toFixed(1)}`;
const seconds = (time) => new Promise((done) => setTimeout(done, 1000 * time));

const resource = (index) => ({
    id: `std::File[m${index % 100},path=/srv/${String(index).padStart(6, "0")}]`,
    attributes: { content: "text", mode: 644, path: `/srv/${index}`, purged: false },
    requires: [],
});

/** Passes requests on to a server, except for the event stream, which it makes up itself. */
class EventProxy {
    rate = 0;
    sent = 0;

    static async start(server, environment) {
        const proxy = new EventProxy();
        proxy.listener = createServer((incoming, outgoing) => {
            if (incoming.url.startsWith("/api/v1/events")) {
                outgoing.writeHead(200, { "content-type": "text/event-stream" });
                let due = 0;
                let last = performance.now();
                const timer = setInterval(() => {
                    const now = performance.now();
                    due += (proxy.rate * (now - last)) / 1000;
                    last = now;
                    let text = proxy.rate === 0 ? ":\n\n" : "";
                    for (; due >= 1; due -= 1) {
                        proxy.sent += 1;
                        const data = {
                            environment,
                            kind: "resources",
                            subject: String(proxy.sent % 5000),
                            at: new Date().toISOString(),
                        };
                        text += `id: ${proxy.sent}\nevent: ${data.kind}\ndata: ${JSON.stringify(data)}\n\n`;
                    }
                    if (text) outgoing.write(text);
                }, 20);
                outgoing.on("close", () => clearInterval(timer));
                return;
            }
            const { method, url, headers } = incoming;
            const onward = httpRequest(
                { host: "127.0.0.1", port: server.port, method, path: url, headers },
                (answer) => {
                    outgoing.writeHead(answer.statusCode, answer.headers);
                    answer.pipe(outgoing);
                },
            );
            onward.on("error", () => outgoing.destroy());
            incoming.pipe(onward);
        });
        await new Promise((done) => proxy.listener.listen(0, "127.0.0.1", done));
        proxy.url = `http://127.0.0.1:${proxy.listener.address().port}`;
        return proxy;
    }

    stop() {
        this.listener.closeAllConnections();
        this.listener.close();
    }
}

/** Counts frames that came later than a missed one. */
async function dropped(page, duration) {
    return page.evaluate(
        (milliseconds) =>
            new Promise((done) => {
                const end = performance.now() + milliseconds;
                let [last, frames, late, longest] = [performance.now(), 0, 0, 0];
                const next = (now) => {
                    const gap = now - last;
                    last = now;
                    frames += 1;
                    if (gap > 34) late += Math.round(gap / 16.7) - 1;
                    longest = Math.max(longest, gap);
                    if (now < end) requestAnimationFrame(next);
                    else done({ frames, dropped: late, longest: Math.round(longest) });
                };
                requestAnimationFrame(next);
            }),
        1000 * duration,
    );
}

const server = await Server.start();
const shop = await Shop.create(server);
await server.call("POST", shop.path("/versions"), {
    resources: Array.from({ length: 10_000 }, (_, index) => resource(index)),
    release: false,
});
const proxy = await EventProxy.start(server, shop.id);
const browser = await Browser.start();
try {
    const page = await browser.page();
    await browser.signIn(page, { url: proxy.url });
    const open = async (path) => {
        await page.goto(proxy.url + path);
        await page.locator("[data-id]").first().waitFor();
    };

    if (isWanted("scroll")) {
        await open(`/e/${shop.id}/resources`);
        const blank = await page.evaluate(
            () =>
                new Promise((done) => {
                    let [since, worst, frames] = [null, 0, 0];
                    const begun = performance.now();
                    const step = (now) => {
                        frames += 1;
                        window.scrollBy(0, 400);
                        const table = document.querySelector(".table-body").getBoundingClientRect();
                        const empty = [250, 450, 650, 850].some((y) => {
                            if (y < table.top || y > table.bottom) return false;
                            const hit = document.elementFromPoint(table.left + 200, y);
                            return !hit?.closest("[data-id]");
                        });
                        if (!empty) since = null;
                        else {
                            since ??= now;
                            worst = Math.max(worst, now - since);
                        }
                        const rows = document.querySelector("[data-id]:last-child");
                        if (now - begun > 60_000 || window.scrollY > 10_000 * 32 - 2000)
                            done({
                                frames,
                                worst: Math.round(worst),
                                rows: !!rows,
                                top: Math.round(window.scrollY / 32),
                            });
                        else requestAnimationFrame(step);
                    };
                    requestAnimationFrame(step);
                }),
        );
        console.log(
            `scroll: ${blank.top} of 10,000 rows in ${blank.frames} frames, longest blank row ${blank.worst} ms, ${load()}`,
        );
    }

    if (isWanted("diff")) {
        const text = (mark) =>
            Array.from(
                { length: 62_500 },
                (_, index) => `line ${index} ${index % 997 === 0 ? mark : ""} ${"x".repeat(60)}`,
            ).join("\n");
        const large = await Shop.create(server, "texts");
        for (const mark of ["old", "new"]) {
            const one = resource(1);
            one.attributes.content = text(mark);
            await server.call("POST", large.path("/versions"), {
                resources: [one],
                release: false,
            });
        }
        await page.addInitScript(() => {
            window.longest_ = 0;
            new PerformanceObserver((list) => {
                for (const entry of list.getEntries())
                    window.longest_ = Math.max(window.longest_, entry.duration);
            }).observe({ type: "longtask", buffered: true });
        });
        await page.goto(`${proxy.url}/e/${large.id}/versions/1...2`);
        await page.getByText("Too large to compare here").waitFor();
        await seconds(2);
        const longest = await page.evaluate(() => window.longest_);
        console.log(
            `diff: texts of ${(text("old").length / 1e6).toFixed(1)} MB, longest task ${Math.round(longest)} ms, ${load()}`,
        );
    }

    if (isWanted("events")) {
        await open(`/e/${shop.id}/resources`);
        for (const rate of [0, 1000]) {
            proxy.rate = rate;
            await seconds(2);
            const before = proxy.sent;
            const found = await dropped(page, 60);
            console.log(
                `events: ${Math.round((proxy.sent - before) / 60)} a second for 60 s: ${found.frames} frames, ${found.dropped} dropped, longest gap ${found.longest} ms, ${load()}`,
            );
        }
        proxy.rate = 0;
    }

    if (isWanted("heap")) {
        await open(`/e/${shop.id}/resources`);
        const session = await page.context().newCDPSession(page);
        proxy.rate = 100;
        for (const minute of [1, 10]) {
            await seconds(minute === 1 ? 60 : 540);
            await session.send("HeapProfiler.collectGarbage");
            const { usedSize } = await session.send("Runtime.getHeapUsage");
            console.log(
                `heap: ${(usedSize / 1e6).toFixed(1)} MB after ${minute} min of 100 events a second, ${load()}`,
            );
        }
        proxy.rate = 0;
    }
} finally {
    await browser.stop();
    proxy.stop();
    await server.stop();
}
