// A small shop: files that deploy, one that fails, those that wait for it, an unknown value, an agent
// without a machine.
import { join } from "node:path";
import { until } from "./server.js";

const at = (line) => ({ file: "main.cf", line, column: 1 });
const file = (agent, path, line, { content = "text\n", requires = [], set } = {}) => ({
    id: `std::File[${agent},path=${path}]`,
    attributes: {
        content,
        mode: 644,
        purged: false,
        path,
        owner: "root",
        group: "root",
        purge_on_delete: false,
    },
    requires,
    source: at(line),
    ...(set ? { set } : {}),
});

export const CONTENT = `${Array.from({ length: 20 }, (_, index) => `option_${index} = ${index}`).join("\n")}\n`;

export class Shop {
    /** Creates the project, the environment and its names; stores no version. */
    static async create(server, name = "live") {
        const shop = new Shop();
        shop.server = server;
        const projects = await server.call("GET", "/projects");
        const project =
            projects.items.find((one) => one.name === "shop") ??
            (await server.call("POST", "/projects", { name: "shop" }));
        const environment = await server.call("POST", "/environments", {
            project: project.id,
            name,
        });
        shop.id = environment.id;
        shop.directory = join(server.directory, `out-${name}`);
        shop.ids = {
            directory: `std::Directory[localhost,path=${shop.directory}]`,
            config: `std::File[localhost,path=${shop.directory}/shop.conf]`,
            failing: "std::File[localhost,path=/proc/nowhere/shop.conf]",
            waiting: `std::File[localhost,path=${shop.directory}/late.conf]`,
            last: `std::File[localhost,path=${shop.directory}/last.conf]`,
            unknown: `std::File[localhost,path=${shop.directory}/address.conf]`,
        };
        return shop;
    }

    path(rest = "") {
        return `/environments/${this.id}${rest}`;
    }

    page(rest = "") {
        return `${this.server.url}/e/${this.id}${rest}`;
    }

    resource(id) {
        return this.page(`/resources/${encodeURIComponent(id)}`);
    }

    resources(content = CONTENT, hosts = 40) {
        const { ids, directory } = this;
        return [
            {
                id: ids.directory,
                attributes: { mode: 755, purged: false, path: directory, purge_on_delete: false },
                requires: [],
                source: at(3),
            },
            file("localhost", `${directory}/shop.conf`, 8, { content, requires: [ids.directory] }),
            file("localhost", "/proc/nowhere/shop.conf", 12),
            file("localhost", `${directory}/late.conf`, 14, { requires: [ids.failing] }),
            file("localhost", `${directory}/last.conf`, 16, { requires: [ids.waiting] }),
            file("web1", "/etc/web.conf", 18),
            { ...file("localhost", `${directory}/address.conf`, 20), undefined: true },
            ...Array.from({ length: hosts }, (_, index) =>
                file("localhost", `${directory}/host-${String(index).padStart(2, "0")}.conf`, 22, {
                    requires: [ids.directory],
                    set: "hosts",
                }),
            ),
        ];
    }

    /** Stores and releases a version. */
    async push(resources, info = { message: "start", author: "ada", commit: "91be0d2aa" }) {
        return this.server.call("POST", this.path("/versions"), {
            resources,
            unknowns: [{ name: "address", resource: this.ids.unknown, source: "fact" }],
            info,
            local_agents: ["localhost"],
            release: true,
        });
    }

    async counts() {
        return (await this.server.call("GET", this.path("/resource-counts"))).by_status;
    }

    async settled() {
        return until("all resources have run", async () => {
            const counts = await this.counts();
            return !counts.available && !counts.deploying && counts;
        });
    }
}
