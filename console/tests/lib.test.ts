// Pure parts: differences, filters, formats, labels, commands, routes, rights.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { curl, orrery, shellQuote } from "../src/lib/command";
import { comparable, diffLines, fold, isEqual } from "../src/lib/diff";
import {
    fromQuery,
    isSelection,
    parse,
    toParameters,
    toQuery,
    toSelection,
    toText,
} from "../src/lib/filters";
import { absolute, count, cutMiddle, duration, relative, stripAnsi } from "../src/lib/format";
import { MATCH_GROUPS, STATUSES, statusLabel, statusTone, WORK_GROUPS } from "../src/lib/labels";
import { match } from "../src/lib/router.svelte";
import { rankIn } from "../src/lib/session.svelte";
import { makesStale, STALE } from "../src/live/kinds";

/** Applies an edit script to check it. */
function apply(lines: { kind: string; text: string }[], side: "added" | "removed") {
    return lines
        .filter((line) => line.kind === "same" || line.kind === side)
        .map((line) => line.text);
}

describe("differences", () => {
    it("are the shortest, and lead from one text to the other", () => {
        const found = diffLines("a\nb\nc\nd\n", "a\nx\nc\nd\ne\n");
        expect(
            found?.filter((line) => line.kind !== "same").map((line) => line.kind + line.text),
        ).toEqual(["removedb", "addedx", "addede"]);
        let seed = 7;
        const random = (max: number) => (seed = (seed * 48_271) % 2_147_483_647) % max;
        for (let round = 0; round < 300; round += 1) {
            const text = () => Array.from({ length: random(12) }, () => "abcd"[random(4)]);
            const [before, after] = [text(), text()];
            const lines = diffLines(before.join("\n"), after.join("\n")) ?? [];
            const clean = (list: (string | undefined)[]) => list.join("\n").replace(/\n$/, "");
            expect(clean(apply(lines, "removed"))).toBe(clean(before));
            expect(clean(apply(lines, "added"))).toBe(clean(after));
        }
    });

    it("have a row for every gap", () => {
        const before = Array.from({ length: 60 }, (_, index) => `line ${index}`);
        const after = before.with(10, "ten").with(50, "fifty");
        const rows = fold(diffLines(before.join("\n"), after.join("\n")) ?? []);
        const gaps = rows.filter((row) => row.kind === "gap");
        expect(gaps.map((gap) => gap.lines.length)).toEqual([7, 33, 6]);
        const shown = rows.reduce(
            (sum, row) => sum + (row.kind === "gap" ? row.lines.length : 1),
            0,
        );
        expect(shown).toBe(62);
    });

    it("give up on texts that differ too much instead of blocking", () => {
        const lines = (prefix: string) =>
            Array.from({ length: 30_000 }, (_, index) => `${prefix}${index}`).join("\n");
        const begun = performance.now();
        expect(diffLines(lines("a"), lines("b"))).toBeNull();
        expect(performance.now() - begun).toBeLessThan(5000);
    });

    it("ignore the order of keys", () => {
        expect(isEqual({ a: 1, b: [1] }, { b: [1], a: 1 })).toBe(true);
        expect(isEqual([1, 2], [2, 1])).toBe(false);
        expect(comparable({ b: 1, a: 2 })).toBe('{\n  "a": 2,\n  "b": 1\n}');
    });
});

describe("filters", () => {
    it("survive text and URL", () => {
        for (const text of [
            "status:failed,skipped agent:web1",
            "-status:deployed type:std::File",
            "set:hosts shop.conf",
            "type:std::File,std::Directory compliance:non_compliant outcome:failed,skipped parked:true",
            "blocked:false web",
            'agent:"two words"',
            "",
        ]) {
            const { filter, problem } = parse(text);
            expect(problem).toBeNull();
            expect(toText(filter)).toBe(text);
            const query = new URLSearchParams();
            for (const [name, value] of Object.entries(toQuery(filter)))
                if (value) query.set(name, value);
            expect(fromQuery(query)).toEqual(filter);
        }
    });

    it("report what they do not know", () => {
        expect(parse("status:broken").problem).toContain("broken");
        expect(parse("colour:red").problem).toContain("colour");
        expect(parse("outcome:failed,odd").problem).toContain("odd");
        expect(parse("status:failed -status:deployed").problem).not.toBeNull();
    });

    it("become parameters of the list", () => {
        expect(toParameters(parse("outcome:failed parked:false -status:deployed").filter)).toEqual({
            status: "!deployed",
            last_outcome: "failed",
            parked: false,
        });
    });

    it("select for a repair only what the API can select", () => {
        expect(isSelection(parse("status:failed agent:web1 shop").filter)).toBe(true);
        for (const text of ["agent:web1,web2", "type:a::B,a::C", "parked:true", "outcome:failed"])
            expect(isSelection(parse(text).filter)).toBe(false);
    });

    it("become the body of a repair", () => {
        expect(toSelection(parse("status:failed agent:web1 shop").filter)).toEqual({
            status: ["failed"],
            agent: "web1",
            value: "shop",
        });
    });
});

describe("formats", () => {
    it("group numbers and round large ones", () => {
        expect([0, 9812, 99_999, 1_234_567].map(count)).toEqual(["0", "9,812", "99,999", "1.2 M"]);
    });
    it("shorten durations", () => {
        expect([850, 4200, 59_400, 80_000, 3_600_000, 100_000_000].map(duration)).toEqual([
            "850 ms",
            "4.2 s",
            "59 s",
            "1m 20s",
            "1h",
            "1d 3h",
        ]);
    });
    it("tell times relative to now below a day", () => {
        const now = Date.parse("2026-11-18T12:00:00Z");
        expect(relative(now - 180_000, now)).toBe("3 min ago");
        expect(relative(now + 48_000, now)).toBe("in 48 s");
        expect(relative(now - 200_000_000, now)).toMatch(/Nov/);
        expect(absolute(now)).toMatch(/2026/);
    });
    it("cut ids in the middle and strip terminal colours", () => {
        expect(cutMiddle("std::File[web1,path=/etc/shop.conf]", 15)).toBe("std::Fi…p.conf]");
        expect(stripAnsi("\u001b[31mred\u001b[0m")).toBe("red");
    });
});

describe("labels", () => {
    it("exist for every state, and an unknown one is shown by its name", () => {
        for (const status of STATUSES) expect(statusLabel(status)).not.toBe("");
        expect(statusLabel("half_done")).toBe("Half done");
        expect(statusTone("half_done")).toBe("idle");
    });
    it("put every managed state into one segment of each ring", () => {
        for (const groups of [MATCH_GROUPS, WORK_GROUPS]) {
            const all = groups.flatMap((group) => group.statuses);
            expect(all.toSorted()).toEqual(STATUSES.filter((one) => one !== "orphaned").toSorted());
        }
    });
});

describe("commands", () => {
    it("quote for a shell", () => {
        expect(shellQuote("it's")).toBe(String.raw`'it'\''s'`);
        expect(orrery("shop/live", "why", "std::File[web1,path=/a b]")).toBe(
            "orrery why 'std::File[web1,path=/a b]' -e shop/live",
        );
        expect(curl("http://h", "/api/v1/x", "POST", { a: 1 })).toContain(`-X POST`);
    });
});

describe("routes", () => {
    it("decode one segment", () => {
        const id = "std::File[web1,path=/etc/shop.conf]";
        const path = `/e/1/resources/${encodeURIComponent(id)}`;
        expect(match("/e/:env/resources/:id", path)).toEqual({ env: "1", id });
        expect(match("/e/:env", path)).toBeNull();
        expect(match("/e/:env/:x", "/e/1/%E0%A4%A")).toBeNull();
    });
});

describe("rights", () => {
    const me = {
        name: "user:ada",
        roles: [
            { role: "viewer" as const, project: "p" },
            { role: "operator" as const, environment: "e" },
        ],
    };
    it("are those of the place", () => {
        expect(rankIn(me)).toBe(0);
        expect(rankIn(me, { project: "p", environment: "x" })).toBe(1);
        expect(rankIn(me, { project: "p", environment: "e" })).toBe(2);
        expect(rankIn(me, { project: "q", environment: "y" })).toBe(0);
    });
});

describe("events", () => {
    const event = (kind: keyof typeof STALE, environment: string | null = "e") => ({
        kind,
        environment,
        subject: "*",
        at: "",
    });
    it("make reads of their environment stale", () => {
        expect(makesStale(event("resources"), "/api/v1/environments/e/resources?limit=1")).toBe(
            true,
        );
        expect(makesStale(event("resources"), "/api/v1/environments/f/resources")).toBe(false);
        expect(makesStale(event("resources"), "/api/v1/environments/e/settings")).toBe(false);
        expect(makesStale(event("agent"), "/api/v1/environments/e/resources/x/why")).toBe(true);
        expect(makesStale(event("request"), "/api/v1/environment-summaries?limit=5")).toBe(true);
        expect(makesStale(event("token", null), "/api/v1/tokens?limit=5")).toBe(true);
        expect(makesStale({ ...event("token"), kind: "moon" as never }, "/api/v1/tokens")).toBe(
            false,
        );
    });
    it("are those of the documentation", () => {
        const text = readFileSync(join(__dirname, "../../docs/reference/api.md"), "utf8");
        const table = text.slice(text.indexOf("| kind | change |"));
        const rows = table.slice(0, table.indexOf("\n\n")).split("\n").slice(2);
        const kinds = rows.map((row) => /^\| `(\w+)`/.exec(row)?.[1]);
        expect(kinds.toSorted()).toEqual(Object.keys(STALE).toSorted());
    });
});
