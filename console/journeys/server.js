// A real server for journeys: a process with its own data directory, on a free port of this machine.
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
export const binary = process.env.ORRERY ?? join(root, "target/debug/orrery");
export const ADMIN = { name: "admin", password: "Correct-horse-1" };

/** Waits for a condition, with a deadline. */
export async function until(what, condition, seconds = 60) {
    const deadline = Date.now() + 1000 * seconds;
    for (;;) {
        const found = await condition();
        if (found) return found;
        if (Date.now() > deadline) throw new Error(`not within ${seconds} s: ${what}`);
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
}

async function freePort() {
    const server = createServer();
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address();
    await new Promise((resolve) => server.close(resolve));
    return port;
}

export class Server {
    /** Starts a server. Without a password for the administrator, it prints a set-up link. */
    static async start({ withAdmin = true } = {}) {
        const server = new Server();
        server.directory = await mkdtemp(join(tmpdir(), "orrery-console-"));
        // The gateway needs a second port; both stay the same over restarts.
        server.port = await freePort();
        server.gateway = await freePort();
        server.url = `http://127.0.0.1:${server.port}`;
        server.withAdmin = withAdmin;
        await server.run();
        if (withAdmin) server.token = (await server.call("POST", "/login", ADMIN)).token;
        return server;
    }

    async run() {
        const { ORRERY_ADMIN_PASSWORD: _, ...environment } = process.env;
        this.output = "";
        this.process = spawn(
            binary,
            [
                "server",
                "--data",
                join(this.directory, "data"),
                "--listen",
                `127.0.0.1:${this.port}`,
                "--gateway-listen",
                `127.0.0.1:${this.gateway}`,
            ],
            {
                env: {
                    ...environment,
                    HOME: this.directory,
                    ...(this.withAdmin ? { ORRERY_ADMIN_PASSWORD: ADMIN.password } : {}),
                },
                stdio: ["ignore", "pipe", "pipe"],
            },
        );
        for (const stream of [this.process.stdout, this.process.stderr]) {
            stream.on("data", (data) => (this.output += data));
        }
        await until("the server listens", () => {
            if (this.process.exitCode !== null)
                throw new Error(`the server ended:\n${this.output}`);
            return this.output.includes("orrery server listens on");
        });
    }

    async kill(signal = "SIGKILL") {
        if (this.process.exitCode !== null) return;
        const ended = new Promise((resolve) => this.process.once("exit", resolve));
        this.process.kill(signal);
        await ended;
    }

    async stop() {
        await this.kill("SIGTERM");
        await rm(this.directory, { recursive: true, force: true });
    }

    /** The link that creates the first account. */
    get link() {
        return /http:\S+\/setup#\S+/.exec(this.output)?.[0];
    }

    async call(method, path, body, token = this.token) {
        const response = await fetch(`${this.url}/api/v1${path}`, {
            method,
            headers: {
                ...(body === undefined ? {} : { "content-type": "application/json" }),
                ...(token ? { authorization: `Bearer ${token}` } : {}),
            },
            ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        });
        const text = await response.text();
        if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
        return text ? JSON.parse(text) : undefined;
    }
}
