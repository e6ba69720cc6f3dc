// Libraries of the cluster pages: layouts as drawings, documents as text.
import { describe, expect, it } from "vitest";
import { catalogPath, documentsUrl, summarize, type ClusterDocument } from "../src/lib/catalog";
import { groupNodes, layOut } from "../src/lib/topology";
import { parseYaml, toYaml } from "../src/lib/yaml";

const group = (count: number, ...services: string[]) => ({
    count,
    hardwaretype: "small",
    imagetype: "debian12",
    services,
});

describe("the drawing of a layout", () => {
    const layout = [group(1, "db", "base"), group(3, "app", "base"), group(2, "proxy", "base")];
    const needs = { proxy: ["app"], app: ["db"], db: [], base: [] };
    const drawn = layOut(
        layout.map((one) => ({ group: one, state: "kept" as const })),
        needs,
    );

    it("puts what others need right of them", () => {
        const at = (service: string) =>
            drawn.groups.find((one) => one.services.includes(service))?.x ?? Number.NaN;
        expect(at("proxy")).toBeLessThan(at("app"));
        expect(at("app")).toBeLessThan(at("db"));
        expect(drawn.edges.map((edge) => edge.services)).toEqual(
            ["app needs db", "proxy needs app"].toSorted((a, b) => b.localeCompare(a)),
        );
    });

    it("does not depend on the order of the groups, and overlaps none", () => {
        const reversed = layOut(
            layout.toReversed().map((one) => ({ group: one, state: "kept" as const })),
            needs,
        );
        expect(reversed.groups).toEqual(drawn.groups);
        for (const one of drawn.groups) {
            for (const other of drawn.groups) {
                if (one === other || one.x !== other.x) continue;
                expect(one.y + one.height <= other.y || other.y + other.height <= one.y).toBe(true);
            }
        }
    });

    it("survives services that need each other", () => {
        const circle = layOut(
            [group(1, "a"), group(1, "b")].map((one) => ({ group: one, state: "kept" as const })),
            { a: ["b"], b: ["a"] },
        );
        expect(circle.groups).toHaveLength(2);
        expect(circle.edges).toHaveLength(2);
    });

    it("draws new nodes apart from kept ones of the same kind", () => {
        const grown = layOut(
            [
                { group: group(2, "app"), state: "kept" },
                { group: group(1, "app"), state: "added" },
            ],
            { app: [] },
        );
        expect(grown.groups.map((one) => one.state)).toEqual(["added", "kept"]);
    });

    it("counts equal nodes together", () => {
        const node = (number: number, ...services: string[]) => ({
            name: `n${number}`,
            number,
            hardwaretype: "small",
            imagetype: "debian12",
            services,
        });
        expect(groupNodes([node(1, "b", "a"), node(2, "c"), node(3, "a", "b")])).toEqual([
            group(2, "a", "b"),
            group(1, "c"),
        ]);
    });
});

describe("documents as YAML", () => {
    const content = {
        name: "web",
        defaults: { services: ["app", "db"], config: { app: { a: 1, b: [{ x: 1 }] } } },
        constraints: { size: { min: 1, max: 3 }, layout: { cantcoexist: [["a", "b"]] } },
        empty: {},
        text: "line one\nline two\n",
        quoted: "yes",
    };

    it("survive writing and reading", () => {
        const parsed = parseYaml(toYaml(content));
        expect("value" in parsed && parsed.value).toEqual(content);
    });

    it("have short lists in one line", () => {
        expect(toYaml(content)).toContain("services: [app, db]");
        expect(toYaml(content)).toContain("size: {min: 1, max: 3}");
    });

    it("know the lines of pointers", () => {
        const parsed = parseYaml("name: web\ndefaults:\n  services:\n    - app\n    - nothing\n");
        if ("error" in parsed) throw new Error(parsed.error);
        expect(parsed.lineOf("/defaults/services/1")).toBe(5);
        expect(parsed.lineOf("/defaults")).toBe(2);
        // What is missing is reported where it would be.
        expect(parsed.lineOf("/defaults/provider")).toBe(2);
    });

    it("name the line of a mistake", () => {
        expect(parseYaml("name: web\nsize: [")).toMatchObject({ line: expect.any(Number) });
        expect(parseYaml("- a list")).toMatchObject({ line: 1 });
        expect(parseYaml("")).toMatchObject({ line: 1 });
    });
});

describe("the catalogue", () => {
    it("summarizes templates, also odd ones", () => {
        const document = (content: unknown) => ({ name: "web", content }) as ClusterDocument;
        expect(
            summarize(
                document({
                    label: "Web",
                    defaults: { services: ["a", { name: "b" }] },
                    compatibility: { services: ["c", "a"] },
                    constraints: { size: { min: 2 } },
                }),
            ),
        ).toMatchObject({
            title: "Web",
            services: ["a", "b"],
            offered: ["a", "b", "c"],
            min: 2,
            max: null,
        });
        expect(summarize(document(null))).toMatchObject({ title: "web", services: [] });
        expect(summarize(document({ defaults: 3, constraints: [] }))).toMatchObject({ min: null });
    });

    it("builds paths of the installation and of projects", () => {
        expect(documentsUrl(null, "service")).toBe(
            "/api/v1/cluster-documents?kind=service&limit=1000",
        );
        expect(documentsUrl("p1", "image")).toContain("/projects/p1/cluster-documents?kind=image");
        expect(catalogPath("image", "a b", "p1")).toBe("/catalog/image/a%20b?project=p1");
    });
});
