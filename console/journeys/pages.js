// The main pages, each with the sign that it has loaded.
import { importExample } from "./documents.js";

const seen = (text) => (page) => page.getByText(text, { exact: false }).first().waitFor();
const heading = (name) => (page) =>
    page.getByRole("heading", { name, exact: false }).first().waitFor();

export async function PAGES(server, shop) {
    const operations = await server.call("GET", shop.path("/operations"));
    const dryRun = await server.call("POST", shop.path("/versions/2/dry-runs"));
    const id = dryRun.request.dry_run;
    const pages = [
        {
            name: "home",
            url: server.url,
            ready: (page) => page.locator("[data-environment=live]").waitFor(),
        },
        { name: "overview", url: shop.page(), ready: seen("Needs attention") },
        {
            name: "resources",
            url: shop.page("/resources"),
            ready: (page) => page.locator("[data-id]").first().waitFor(),
        },
        {
            name: "resources-filtered",
            url: shop.page(
                `/resources?status=failed,skipped&sel=${encodeURIComponent(shop.ids.last)}`,
            ),
            ready: seen("Root cause"),
        },
        { name: "resource-why", url: shop.resource(shop.ids.last), ready: seen("Root cause") },
        {
            name: "resource-diff",
            url: shop.resource(shop.ids.config),
            ready: seen("option_7 = seven"),
        },
        {
            name: "resource-log",
            url: `${shop.resource(shop.ids.failing)}?tab=log`,
            ready: (page) => page.getByRole("log").waitFor(),
        },
        {
            name: "resource-runs",
            url: `${shop.resource(shop.ids.config)}?tab=runs`,
            ready: seen("Deployed"),
        },
        {
            name: "graph",
            url: shop.page("/graph"),
            ready: (page) => page.locator("[data-shown]").waitFor(),
        },
        {
            name: "graph-list",
            url: shop.page("/graph?view=list"),
            ready: (page) => page.locator("[data-entry]").first().waitFor(),
        },
        {
            name: "graph-groups",
            url: shop.page("/graph?group=agent&open=localhost"),
            ready: (page) => page.locator("[data-shown]").waitFor(),
        },
        {
            name: "versions",
            url: shop.page("/versions"),
            ready: (page) => page.locator("[data-version='2']").waitFor(),
        },
        { name: "compare", url: shop.page("/versions/1...2"), ready: seen("option_7 = seven") },
        {
            name: "dry-run",
            url: shop.page(`/versions/2/dry-runs/${id}`),
            ready: (page) => page.locator("[data-group=unchanged]").waitFor(),
        },
        {
            name: "runs",
            url: shop.page("/runs"),
            ready: (page) => page.locator("[data-run]").first().waitFor(),
        },
        { name: "operations", url: shop.page("/operations"), ready: heading("Operations") },
        { name: "compiles", url: shop.page("/compiles"), ready: heading("No compile yet") },
        {
            name: "agents",
            url: shop.page("/agents"),
            ready: (page) => page.locator("[data-agent=web1]").waitFor(),
        },
        { name: "parameters", url: shop.page("/data/parameters"), ready: seen("Parameters") },
        { name: "facts", url: shop.page("/data/facts"), ready: seen("No fact yet") },
        { name: "secrets", url: shop.page("/data/secrets"), ready: seen("Secrets") },
        {
            name: "notifications",
            url: shop.page("/notifications"),
            ready: heading("Notifications"),
        },
        {
            name: "settings",
            url: shop.page("/settings"),
            ready: (page) => page.locator("[data-setting]").first().waitFor(),
        },
        { name: "tokens", url: `${server.url}/admin/tokens`, ready: heading("Token") },
        {
            name: "users",
            url: `${server.url}/admin/users`,
            ready: (page) => page.locator("main td b").first().waitFor(),
        },
        { name: "audit", url: `${server.url}/admin/audit`, ready: seen("Verify the chain") },
        { name: "server", url: `${server.url}/admin/server`, ready: seen("This server") },
        { name: "gallery", url: `${server.url}/gallery`, ready: heading("Gallery") },
    ];
    await importExample(server);
    await server.call("PUT", shop.path("/discovered"), {
        resources: [
            {
                id: "std::File[web1,path=/etc/legacy.conf]",
                attributes: { mode: 600, owner: "root" },
            },
            { id: shop.ids.config, attributes: { mode: 644 } },
        ],
    });
    pages.push(
        {
            name: "discovered",
            url: shop.page("/discovered"),
            ready: (page) => page.locator("[data-found]").first().waitFor(),
        },
        {
            name: "metrics",
            url: shop.page("/metrics"),
            ready: (page) => page.locator("[data-chart='Runs per hour']").waitFor(),
        },
        {
            name: "catalog",
            url: `${server.url}/catalog/template`,
            ready: (page) => page.locator("[data-template=webstack]").waitFor(),
        },
        {
            name: "clusters",
            url: `${server.url}/clusters`,
            ready: heading("No cluster yet"),
        },
        {
            name: "catalog-services",
            url: `${server.url}/catalog/service`,
            ready: (page) => page.locator("[data-document=nginx]").waitFor(),
        },
        {
            name: "document",
            url: `${server.url}/catalog/template/webstack`,
            ready: (page) => page.getByLabel("Document in YAML").waitFor(),
        },
        {
            name: "cluster-new",
            url: `${server.url}/clusters/new?template=webstack&size=7`,
            ready: (page) => page.locator("[data-solved='7']").waitFor(),
        },
        {
            name: "cluster-conflict",
            url: `${server.url}/clusters/new?template=webstack&size=3`,
            ready: (page) => page.locator("[data-conflict]").waitFor(),
        },
    );
    const operation = operations.items[0];
    if (operation) {
        pages.push({
            name: "operation",
            url: shop.page(`/operations/${operation.id}`),
            ready: seen("requested"),
        });
    }
    return pages;
}
