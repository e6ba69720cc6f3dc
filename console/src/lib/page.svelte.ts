// The current page: values of its path, its title, and its equivalent command.
import { at } from "../api/client";
import type { Environment } from "../api/types";

class PageState {
    name = $state("");
    values = $state.raw<Record<string, string>>({});
    /** The environment of the page, once it is read. */
    environment = $state.raw<Environment | undefined>(undefined);
    /** The command that shows or does the same in a terminal. */
    command = $state<string | null>(null);
    /** What the page shows, for the title; the name of the page if empty. */
    subject = $state("");

    title = $derived.by(() => {
        const environment = this.environment
            ? `${this.environment.project_name}/${this.environment.name}`
            : "";
        return [this.subject || this.name, environment, "Orrery"].filter(Boolean).join(" · ");
    });

    /** Id of the environment in the path. */
    get env(): string {
        return this.values["env"] ?? "";
    }

    /** `project/environment`, as the command line names it. */
    get environmentName(): string {
        return this.environment
            ? `${this.environment.project_name}/${this.environment.name}`
            : this.env;
    }
}

export const page = new PageState();

export function environmentUrl(env: string) {
    return at("/api/v1/environments/{environment}", { environment: env });
}
