// Words about versions.
import type { Operation, VersionSummary } from "../api/types";

type Info = Record<string, unknown>;

/** Author, commit and message of a version, from its information. */
export function provenance(version: VersionSummary): {
    author: string;
    commit: string;
    message: string;
} {
    const info = (version.info ?? {}) as Info;
    const inner = (info["metadata"] ?? {}) as Info;
    const text = (...names: string[]) => {
        for (const name of names) {
            const value = info[name] ?? inner[name];
            if (typeof value === "string" && value) return value;
        }
        return "";
    };
    return {
        author: text("author", "user", "by"),
        commit: text("commit", "inmanta_git_commit"),
        message: text("message", "type"),
    };
}

/** Id of the dry run that an operation makes. */
export function dryRunOf(operation: Operation): string {
    return String((operation.request as Info | null)?.["dry_run"] ?? "");
}
